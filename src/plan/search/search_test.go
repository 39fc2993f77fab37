package search

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan/plantest"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

func planner(t *testing.T, c config.Config, n sim.Network) *Problem {
	t.Helper()
	p, err := New(c, n, nil)
	expect.OK(t, err)
	return p
}

// begin returns the step of some costs before there is a layout.
func begin(p *Problem, costs cost.Table) *Step { return p.Step(costs, layout.Layout{}) }

// at returns the step of some costs at some cuts.
func at(p *Problem, costs cost.Table, cuts partition.Partition) *Step {
	return p.Step(costs, begin(p, costs).baseLayout(cuts))
}

// bestCuts returns the best cuts in the map of the settings.
func bestCuts(p *Problem, costs cost.Table) (partition.Partition, error) {
	l, err := begin(p, costs).BestInMap(p.forms[0].Map)
	return l.Cuts, err
}

// cutsSeconds returns the seconds of a step at some cuts in the schedule that suits the costs.
func cutsSeconds(p *Problem, costs cost.Table, cuts partition.Partition) float64 {
	s := begin(p, costs)
	return s.Seconds(s.Layout(cuts))
}

// simulateCuts simulates the first step of a phase at some cuts.
func simulateCuts(p *Problem, costs cost.Phase, cuts partition.Partition) (Plan, error) {
	return p.Simulate(costs, begin(p, costs.Mean()).Layout(cuts), costs.Step)
}

var everyKind = []schedule.Kind{
	schedule.KindGPipe, schedule.Kind1F1B, schedule.KindInterleaved, schedule.KindZBH1, schedule.KindZBH2,
	schedule.KindZBV, schedule.KindList, schedule.KindAuto,
}

// TestIdleSums: busy and idle time by cause are the makespan, in every kind of
// schedule; each cause is there when what causes it is, and only then.
func TestIdleSums(t *testing.T) {
	for _, kind := range everyKind {
		for seed := range uint64(10) {
			c := plantest.Settings(kind, 16, 4, 8)
			costs := plantest.Chain(16, 1, seed)
			p := planner(t, c, plantest.Link)
			first, err := begin(p, costs).FirstLayout()
			expect.OK(t, err)
			a, err := simulateCuts(p, cost.Phase{Table: costs}, first.Cuts)
			expect.OK(t, err)
			if got, want := a.Idle.Makespan(), a.Step.Makespan(); math.Abs(got-want) > 1e-9*want {
				t.Errorf("%s, draw %d: parts sum to %v, the makespan is %v", kind, seed, got, want)
			}
			if a.Idle.Communication <= 0 || a.Idle.Memory != 0 && a.Caps == nil {
				t.Errorf("%s, draw %d: %+v, want communication, and no memory without a cap", kind, seed, a.Idle)
			}
			if a.LowerBound > a.Step.Makespan() {
				t.Errorf("%s, draw %d: bound %v above the makespan %v", kind, seed, a.LowerBound, a.Step.Makespan())
			}
		}
	}
}

// TestIdleOfEqualStages: all idle time of equal stages is inherent,
// (P-1)·(f+i+w) in 1F1B; doubling one stage's load adds imbalance alone.
func TestIdleOfEqualStages(t *testing.T) {
	c := plantest.Settings(schedule.Kind1F1B, 8, 4, 8)
	p := planner(t, c, sim.Network{})
	costs, cuts := plantest.Chain(8, 0, 0), partition.Partition{0, 2, 4, 6, 8}
	a, err := simulateCuts(p, cost.Phase{Table: costs}, cuts)
	expect.OK(t, err)
	if want := 3 * 6e-3; math.Abs(a.Idle.Inherent-want) > 1e-12 || math.Abs(a.Idle.Makespan()-a.Idle.Busy-want) > 1e-12 {
		t.Errorf("%+v, want %v inherent and nothing else", a.Idle, want)
	}
	uneven, err := simulateCuts(p, cost.Phase{Table: costs}, partition.Partition{0, 1, 5, 6, 8})
	expect.OK(t, err)
	if math.Abs(uneven.Idle.Inherent-a.Idle.Inherent) > 1e-12 || uneven.Idle.Imbalance < 1e-2 {
		t.Errorf("%+v, want the same inherent idle time and imbalance", uneven.Idle)
	}
}

// TestMemoryCap: where memory holds few microbatches in flight, list keeps to
// it, the plan says so, and what the cap costs is idle by memory.
func TestMemoryCap(t *testing.T) {
	c := plantest.Settings(schedule.KindAuto, 8, 4, 16)
	costs, cuts := plantest.Chain(8, 0, 0), partition.Partition{0, 2, 4, 6, 8}
	free, err := simulateCuts(planner(t, c, plantest.Link), cost.Phase{Table: costs}, cuts)
	expect.OK(t, err)
	c.Balance.MemoryLimitBytes = 2*1600 + 4*200 // layers and four microbatches, which 1F1B needs on its first stage
	tight, err := simulateCuts(planner(t, c, plantest.Link), cost.Phase{Table: costs}, cuts)
	expect.OK(t, err)
	for s := range 4 {
		if tight.Bytes[s] > c.Balance.MemoryLimitBytes || tight.InFlight[s] > 4 {
			t.Errorf("stage %d: %d bytes with %d in flight, the limit is %d", s, tight.Bytes[s], tight.InFlight[s], c.Balance.MemoryLimitBytes)
		}
	}
	if tight.Step.Makespan() <= free.Step.Makespan() || tight.Idle.Memory <= 0 {
		t.Errorf("makespan %v under the cap, %v without; idle %+v", tight.Step.Makespan(), free.Step.Makespan(), tight.Idle)
	}
	c.Balance.MemoryLimitBytes, c.Schedule.InFlight = 0, 4
	set, err := simulateCuts(planner(t, c, plantest.Link), cost.Phase{Table: costs}, cuts)
	expect.OK(t, err)
	if diff := cmp.Diff(tight.Schedule, set.Schedule); diff != "" {
		t.Errorf("schedule.in_flight = 4 differs from memory for 4: %s", diff)
	}
}

// TestImproveNeverLoses: cuts found with the simulated step are no slower than
// the exact partition, at times faster, and fit.
func TestImproveNeverLoses(t *testing.T) {
	faster := 0
	for _, kind := range everyKind {
		for seed := range uint64(5) {
			c := plantest.Settings(kind, 20, 4, 8)
			p, costs := planner(t, c, plantest.Link), plantest.Chain(20, 4, seed)
			exact, err := balance.Partition(begin(p, costs).cutProblem(&p.forms[0], balance.ByTime))
			expect.OK(t, err)
			before := cutsSeconds(p, costs, exact.Cuts)
			cuts, err := bestCuts(p, costs)
			expect.OK(t, err)
			after := cutsSeconds(p, costs, cuts)
			if after > before {
				t.Errorf("%s, draw %d: %v at %v, the exact partition takes %v", kind, seed, after, cuts, before)
			}
			if after < before {
				faster++
			}
		}
	}
	if faster == 0 {
		t.Error("the simulated step never moved a cut")
	}
}

// TestArrivals: gaps include the time until input arrives. Diffusion then gives less work to the
// stage behind a slow link, and the cuts are only taken if the simulated step gets shorter.
func TestArrivals(t *testing.T) {
	c := plantest.Settings(schedule.Kind1F1B, 16, 4, 8)
	c.Balance.Kind = "diffusion"
	slow := sim.Network{Node: sim.Link{Latency: 1e-6}, Between: sim.Link{Latency: 5e-3}, PerNode: 2} // stages 0 and 1, 2 and 3
	costs, even := plantest.Chain(16, 0, 0), partition.Partition{0, 4, 8, 12, 16}
	p := planner(t, c, slow)
	if problem := begin(p, costs).cutProblem(&p.forms[0], balance.ByTime); problem.Fixed != nil {
		t.Errorf("by work alone stages have fixed seconds %v", problem.Fixed)
	}
	c.Balance.Gaps = "arrival"
	p = planner(t, c, slow)
	r, _, err := balance.Diffusion(begin(p, costs).cutProblem(&p.forms[0], balance.ByTime), even, balance.DiffusionOptions{})
	expect.OK(t, err)
	if r.Cuts.Count(2) >= 4 {
		t.Errorf("cuts %v leave the stage behind the slow plantest.Link %d layers", r.Cuts, r.Cuts.Count(2))
	}
	if next := at(p, costs, even).FasterCuts(r.Cuts); cutsSeconds(p, costs, next) > cutsSeconds(p, costs, even) {
		t.Errorf("%v was taken and is slower", next)
	}
}

// TestSlowRanks: a rank that the network calls slow gets less work. A plan prints the time of its
// stage on that rank.
func TestSlowRanks(t *testing.T) {
	slow := plantest.Link
	slow.Slow = []float64{1, 3}
	p, costs := planner(t, plantest.Settings(schedule.Kind1F1B, 16, 4, 8), slow), plantest.Chain(16, 0, 0)
	cuts, err := bestCuts(p, costs)
	expect.OK(t, err)
	a, err := simulateCuts(p, cost.Phase{Table: costs}, cuts)
	expect.OK(t, err)
	if n := cuts.Count(1); n > 2 {
		t.Errorf("cuts %v give the slow rank %d layers", cuts, n)
	}
	if got, want := a.Costs[1].Seconds(), float64(cuts.Count(1))*9e-3; math.Abs(got-want) > 1e-12 {
		t.Errorf("stage 1 costs %v, want %v", got, want)
	}
	if a.Step.Makespan() < a.LowerBound || a.Optimum > a.Bottleneck || a.LowerBound < 8*a.Bottleneck {
		t.Errorf("makespan %v, bound %v, bottleneck %v, optimum %v", a.Step.Makespan(), a.LowerBound, a.Bottleneck, a.Optimum)
	}
	if costs.Slow != nil {
		t.Error("the table was changed")
	}
}

// TestSlowReplica: a slow rank counts whichever replica it is of, and its
// slowness counts once.
func TestSlowReplica(t *testing.T) {
	for rank := range 2 { // both replicas of stage 0
		slow := plantest.Link
		slow.Slow = []float64{1, 1}
		slow.Slow[rank] = 3
		c := plantest.Settings(schedule.KindZBH1, 24, 4, 8)
		c.Parallel.Replicas = 2
		p, costs := planner(t, c, slow), plantest.Chain(24, 0, 0)
		next, err := at(p, costs, partition.Partition{0, 6, 12, 18, 24}).NextCuts(100)
		expect.OK(t, err)
		if next.Count(0) > 3 {
			t.Errorf("rank %d slow: cuts %v", rank, next)
		}
		a, err := simulateCuts(p, cost.Phase{Table: costs}, partition.Partition{0, 6, 12, 18, 24})
		expect.OK(t, err)
		if predicted := cutsSeconds(p, costs, a.Cuts); math.Abs(predicted-a.Seconds) > 1e-9*predicted {
			t.Errorf("rank %d slow: predicted %v, all replicas simulated take %v", rank, predicted, a.Seconds)
		}
		if a.Idle.Imbalance < 0.5*a.Idle.Makespan()/4 || a.Idle.Inherent > a.Idle.Busy {
			t.Errorf("rank %d slow: %+v, want most of it imbalance", rank, a.Idle)
		}
	}
}

// TestTightMemory: under any limit a plan is above its lower bound, fits, and is
// no slower than 1F1B, which fits too.
func TestTightMemory(t *testing.T) {
	for seed := range uint64(60) {
		draw := random.Keyed(seed, 31)
		c, costs := plantest.Settings(schedule.KindAuto, 12, 4, 16), plantest.Chain(12, 2, seed)
		for l := range costs.Layers {
			costs.Layers[l].Bytes.Held = int64(draw.IntN(150))
		}
		c.Balance.MemoryLimitBytes = 3*1600 + 300*int64(4+draw.IntN(10))
		p := planner(t, c, plantest.Link)
		cuts, err := bestCuts(p, costs)
		if err != nil {
			continue
		}
		a, err := simulateCuts(p, cost.Phase{Table: costs}, cuts)
		expect.OK(t, err)
		if a.LowerBound > a.Step.Makespan() || slices.Max(a.Bytes) > c.Balance.MemoryLimitBytes || !begin(p, costs).Fits(a.Layout) {
			t.Errorf("draw %d: bound %v, makespan %v, bytes %v of %d", seed, a.LowerBound, a.Step.Makespan(), a.Bytes, c.Balance.MemoryLimitBytes)
		}
		if base := begin(p, costs).Makespan(begin(p, costs).baseLayout(cuts)); a.Step.Makespan() > base {
			t.Errorf("draw %d: %v, 1F1B takes %v", seed, a.Step.Makespan(), base)
		}
		if a.Schedule.Kind == schedule.Kind1F1B && a.Idle.Memory <= 0 {
			t.Errorf("draw %d: 1F1B for want of memory, but idle %+v", seed, a.Idle)
		}
	}
}

// TestFasterMakesRoom: cuts that no longer fit are left for some that do, however
// slow those are.
func TestFasterMakesRoom(t *testing.T) {
	c, costs := plantest.Settings(schedule.Kind1F1B, 8, 2, 4), plantest.Chain(8, 0, 0)
	costs.Layers[0].Bytes.Parameters += 2000
	c.Balance.MemoryLimitBytes = 4*1600 + 8*100 + 1999
	p := planner(t, c, plantest.Link)
	full, fitting := partition.Partition{0, 4, 8}, partition.Partition{0, 3, 8}
	if got := at(p, costs, full).FasterCuts(fitting); !got.Equal(fitting) {
		t.Errorf("cuts stay %v, which do not fit", got)
	}
}

// TestFewInFlight: fewer microbatches in flight than 1F1B has are kept to from
// the first step.
func TestFewInFlight(t *testing.T) {
	c := plantest.Settings(schedule.KindList, 8, 4, 8)
	c.Schedule.InFlight = 1
	p := planner(t, c, plantest.Link)
	for _, s := range []schedule.Schedule{p.forms[0].base, begin(p, plantest.Chain(8, 1, 1)).Layout(partition.Partition{0, 2, 4, 6, 8}).Schedule} {
		if slices.Max(s.InFlight()) != 1 {
			t.Errorf("%s has %v in flight", s.Kind, s.InFlight())
		}
		if err := s.Check(func(int) int { return 1 }); err != nil {
			t.Error(err)
		}
	}
}

// TestChunksWithoutMemory: where no cuts of several chunks fit, the error is the
// one that training goes on after; where only the present ones are known to, they
// stay.
func TestChunksWithoutMemory(t *testing.T) {
	for _, by := range []balance.By{balance.ByTime, balance.ByParam} {
		c, costs := plantest.Settings(schedule.KindZBV, 16, 2, 6), plantest.Chain(16, 1, 2)
		c.Balance.By, c.Balance.MemoryLimitBytes = string(by), 5000
		p, now := planner(t, c, plantest.Link), partition.Partition{0, 4, 8, 12, 16}
		_, err := at(p, costs, now).NextCuts(100)
		if full, ok := errors.AsType[*balance.MemoryError](err); !ok || full.Missing <= 0 || full.Stage < 0 {
			t.Errorf("%s: error %v, want one of memory that names a stage", by, err)
		}
		c.Balance.MemoryLimitBytes = slices.Max(begin(p, costs).bytesInBase(now))
		p = planner(t, c, plantest.Link)
		next, err := at(p, costs, now).NextCuts(100)
		if err != nil || !begin(p, costs).CutsFit(next) {
			t.Errorf("%s: cuts %v, error %v", by, next, err)
		}
	}
}

// TestManyMicrobatches: more than messages can be told apart by are refused where
// their order alone does not.
func TestManyMicrobatches(t *testing.T) {
	for kind, want := range map[schedule.Kind]bool{schedule.Kind1F1B: true, schedule.KindInterleaved: false} {
		_, err := New(plantest.Settings(kind, 16, 2, 5000), plantest.Link, nil)
		if (err == nil) != want {
			t.Errorf("%s: error %v", kind, err)
		}
	}
	if _, err := New(plantest.Settings(schedule.Kind1F1B, 16, 2, 10000), plantest.Link, nil); err != nil {
		t.Error(err)
	}
}

// TestOtherRanks: what was measured of ranks says nothing of another number of
// stages, and stands in the way of none.
func TestOtherRanks(t *testing.T) {
	costs := plantest.Chain(16, 0, 0)
	costs.Slow, costs.Fixed = []float64{1, 2}, []float64{0, 1}
	for _, stages := range []int{1, 4} {
		p := planner(t, plantest.Settings(schedule.Kind1F1B, 16, stages, 8), sim.Network{})
		cuts, err := bestCuts(p, costs)
		expect.OK(t, err)
		a, err := simulateCuts(p, cost.Phase{Table: costs}, cuts)
		expect.OK(t, err)
		if want := 48e-3 / float64(stages); math.Abs(a.Bottleneck-want) > 1e-12 {
			t.Errorf("%d stages: bottleneck %v, want %v", stages, a.Bottleneck, want)
		}
	}
}

// TestBoundOfUnevenReplicas: replicas that are slow on different stages take less
// than one that were slow on all of them; no plan is below its bound, in any kind
// of schedule.
func TestBoundOfUnevenReplicas(t *testing.T) {
	c, costs := plantest.Settings(schedule.Kind1F1B, 12, 3, 3), plantest.Chain(12, 1, 4)
	c.Parallel.Replicas = 3
	n := plantest.Link
	n.Slow = []float64{4, 1, 1, 1, 4, 1, 1, 1, 4}
	for _, kind := range Kinds {
		c.Schedule.Kind = string(kind)
		p := planner(t, c, n)
		cuts, err := bestCuts(p, costs)
		expect.OK(t, err)
		a, err := simulateCuts(p, cost.Phase{Table: costs}, cuts)
		expect.OK(t, err)
		if a.LowerBound > a.Step.Makespan()*(1+1e-12) {
			t.Errorf("%s: bound %v, makespan %v", a.Schedule.Kind, a.LowerBound, a.Step.Makespan())
		}
	}
}

// TestGapIsInherent: what hosts do between instructions is no communication.
func TestGapIsInherent(t *testing.T) {
	costs := plantest.Chain(8, 0, 0)
	costs.Dispatch = 1e-4
	p := planner(t, plantest.Settings(schedule.KindZBH1, 8, 4, 8), sim.Network{})
	a, err := simulateCuts(p, cost.Phase{Table: costs}, partition.Partition{0, 2, 4, 6, 8})
	expect.OK(t, err)
	if a.Idle.Communication != 0 || a.Idle.Inherent < 8*3e-4-1e-9 {
		t.Errorf("%+v, want the gaps inherent", a.Idle)
	}
}

// TestCutsKnowTheEndOfAStep: of cuts whose pipelines take as long, those are taken whose
// sum of gradients is hidden.
func TestCutsKnowTheEndOfAStep(t *testing.T) {
	costs := plantest.Chain(48, 0, 0)
	last := &costs.Layers[47]
	*last = last.WithSeconds(last.Stage().Scale(6)) // the head, whole
	for l := range costs.Layers {
		costs.Layers[l].Bytes.Gradients = 1 << 18 // 20 ms over the link
	}
	c := plantest.Settings(schedule.Kind1F1B, 48, 16, 32)
	c.Parallel.Replicas = 8
	p := planner(t, c, plantest.Link)
	cuts, err := bestCuts(p, costs)
	expect.OK(t, err)
	c.Parallel.Replicas = 1
	alone, err := bestCuts(planner(t, c, plantest.Link), costs)
	expect.OK(t, err)
	if whole, pipeline := cutsSeconds(p, costs, cuts), cutsSeconds(p, costs, alone); !(whole < pipeline) {
		t.Errorf("a step takes %v, %v at the cuts of a pipeline without replicas: %v %v", whole, pipeline, cuts, alone)
	}
}

// TestSumsWeighInCuts: sums of gradients take as long as work. The cuts of the search are within 3
// % of the best of all cuts, and within 0.15 % in the mean.
func TestSumsWeighInCuts(t *testing.T) {
	rnd := random.Keyed(5, 6) // fixed seed: a failure must repeat
	const layers, stages, draws = 12, 4, 40
	c := plantest.Settings(schedule.Kind1F1B, layers, stages, 8)
	c.Parallel.Replicas = 4
	p := planner(t, c, plantest.Link)
	over := 0.0
	for draw := range draws {
		costs := plantest.Chain(layers, 0, 0)
		for l := range costs.Layers {
			layer := &costs.Layers[l]
			*layer = layer.WithSeconds(layer.Stage().Scale(0.1 + rnd.Float64()))
			layer.Bytes.Gradients = rnd.Int64N(1 << 17) // up to 20 ms over the link
		}
		cuts, err := bestCuts(p, costs)
		expect.OK(t, err)
		best := math.Inf(1)
		for a := 1; a < layers-2; a++ {
			for b := a + 1; b < layers-1; b++ {
				for c := b + 1; c < layers; c++ {
					best = min(best, cutsSeconds(p, costs, partition.Partition{0, a, b, c, layers}))
				}
			}
		}
		got := cutsSeconds(p, costs, cuts)
		if got > 1.03*best {
			t.Errorf("draw %d: a step takes %v at %v, %v at the best cuts", draw, got, cuts, best)
		}
		over += got/best - 1
	}
	if over > 0.0015*draws {
		t.Errorf("%.2f %% above the best cuts in the mean", 100*over/draws)
	}
}

// TestWithRefuses: microbatches of a step share its samples evenly.
func TestWithRefuses(t *testing.T) {
	p := planner(t, plantest.Settings(schedule.Kind1F1B, 16, 4, 8), plantest.Link)
	for _, n := range []int{0, 3, 32} {
		if _, err := p.Resize(2, n); err == nil {
			t.Errorf("%d microbatches of 16 sequences", n)
		}
	}
}

// TestDenseCountsReferences: where layers freeze by their plasticity, every block and the embedding
// has a reference. It takes a byte for each weight and four for each row, on a CPU alone.
func TestDenseCountsReferences(t *testing.T) {
	c := config.Default()
	c.Model.Blocks, c.Model.Hidden, c.Model.Heads = 2, 8, 2
	without := Dense(c)
	c.Dynamic.Kind = "freeze"
	h := int64(c.Model.Hidden)
	rows, values := 9*h+8, 12*h*h+13*h                // of the matrices 3h, h, 4h and h rows; biases of as many values, and norms, are 8 vectors
	tokens := int64(c.Model.Vocab + c.Model.Sequence) // rows of the embedding
	want := []int64{4*tokens + h*tokens, 4*rows + values, 4*rows + values, 0}
	for l, layer := range Dense(c).Layers {
		more := layer.Bytes.Static() - without.Layers[l].Bytes.Static()
		if more != want[l] {
			t.Errorf("%s: %d bytes more, want %d", layer.Name, more, want[l])
		}
	}
	c.Device.Kind, c.Device.Precision = "cuda", "f32"
	if got := Dense(c).Layers[1].Bytes.Static(); got != without.Layers[1].Bytes.Static() {
		t.Errorf("a block on a GPU takes %d bytes, want %d", got, without.Layers[1].Bytes.Static())
	}
}
