package plan

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// chain returns the costs of a chain of blocks whose seconds are drawn from
// [1, 1+spread) ms for each of f, i and w.
func chain(layers int, spread float64, seed uint64) cost.Table {
	draw := random.Keyed(seed, 5)
	t := cost.Table{Clock: "sim"}
	for l := range layers {
		t.Layers = append(t.Layers, cost.Layer{
			Name:    fmt.Sprintf("block.%d", l),
			Forward: 1e-3 * (1 + spread*draw.Float64()), BackwardInput: 1e-3 * (1 + spread*draw.Float64()),
			BackwardWeight: 1e-3 * (1 + spread*draw.Float64()), NonZeros: 100, Output: 1000,
			Bytes: cost.Bytes{Parameters: 400, Gradients: 400, Optimizer: 800, Activations: 100},
		})
	}
	return t
}

// settings returns settings of a chain of so many layers.
func settings(kind schedule.Kind, layers, stages, microbatches int) config.Config {
	c := config.Default()
	c.Model.Blocks = layers - 2
	c.Schedule.Kind, c.Parallel.Stages, c.Parallel.Microbatches = string(kind), stages, microbatches
	return c
}

// link is a network on which messages cost about a tenth of a layer.
var link = sim.Uniform(5e-5, 2e7)

func planner(t *testing.T, c config.Config, n sim.Network) *Planner {
	t.Helper()
	p, err := New(c, n, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
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
			c := settings(kind, 16, 4, 8)
			costs := chain(16, 1, seed)
			p := planner(t, c, link)
			cuts, err := p.First(costs)
			if err != nil {
				t.Fatal(err)
			}
			a, err := p.At(cost.Stretch{Table: costs}, cuts)
			if err != nil {
				t.Fatal(err)
			}
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
	c := settings(schedule.Kind1F1B, 8, 4, 8)
	p := planner(t, c, sim.Network{})
	costs, cuts := chain(8, 0, 0), partition.Partition{0, 2, 4, 6, 8}
	a, err := p.At(cost.Stretch{Table: costs}, cuts)
	if err != nil {
		t.Fatal(err)
	}
	if want := 3 * 6e-3; math.Abs(a.Idle.Inherent-want) > 1e-12 || math.Abs(a.Idle.Makespan()-a.Idle.Busy-want) > 1e-12 {
		t.Errorf("%+v, want %v inherent and nothing else", a.Idle, want)
	}
	uneven, err := p.At(cost.Stretch{Table: costs}, partition.Partition{0, 1, 5, 6, 8})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(uneven.Idle.Inherent-a.Idle.Inherent) > 1e-12 || uneven.Idle.Imbalance < 1e-2 {
		t.Errorf("%+v, want the same inherent idle time and imbalance", uneven.Idle)
	}
}

// TestMemoryCap: where memory holds few microbatches in flight, list keeps to
// it, the plan says so, and what the cap costs is idle by memory.
func TestMemoryCap(t *testing.T) {
	c := settings(schedule.KindAuto, 8, 4, 16)
	costs, cuts := chain(8, 0, 0), partition.Partition{0, 2, 4, 6, 8}
	free, err := planner(t, c, link).At(cost.Stretch{Table: costs}, cuts)
	if err != nil {
		t.Fatal(err)
	}
	c.Balance.MemoryLimitBytes = 2*1600 + 4*200 // layers and four microbatches, which 1F1B needs on its first stage
	tight, err := planner(t, c, link).At(cost.Stretch{Table: costs}, cuts)
	if err != nil {
		t.Fatal(err)
	}
	for s := range 4 {
		if tight.Bytes[s] > c.Balance.MemoryLimitBytes || tight.InFlight[s] > 4 {
			t.Errorf("stage %d: %d bytes with %d in flight, the limit is %d", s, tight.Bytes[s], tight.InFlight[s], c.Balance.MemoryLimitBytes)
		}
	}
	if tight.Step.Makespan() <= free.Step.Makespan() || tight.Idle.Memory <= 0 {
		t.Errorf("makespan %v under the cap, %v without; idle %+v", tight.Step.Makespan(), free.Step.Makespan(), tight.Idle)
	}
	c.Balance.MemoryLimitBytes, c.Schedule.InFlight = 0, 4
	set, err := planner(t, c, link).At(cost.Stretch{Table: costs}, cuts)
	if err != nil {
		t.Fatal(err)
	}
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
			c := settings(kind, 20, 4, 8)
			p, costs := planner(t, c, link), chain(20, 4, seed)
			exact, err := balance.Partition(p.Problem(costs, balance.ByTime))
			if err != nil {
				t.Fatal(err)
			}
			before := p.Makespan(costs, exact.Cuts)
			cuts, err := p.Cuts(costs)
			if err != nil {
				t.Fatal(err)
			}
			after := p.Makespan(costs, cuts)
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

// TestArrivals: with gaps that include the time until input arrives, diffusion
// gives less work to the stage behind a slow link, and the cuts are only taken
// if the simulated step gets shorter.
func TestArrivals(t *testing.T) {
	c := settings(schedule.Kind1F1B, 16, 4, 8)
	c.Balance.Kind = "diffusion"
	slow := sim.Network{Node: sim.Link{Latency: 1e-6}, Between: sim.Link{Latency: 5e-3}, PerNode: 2} // stages 0 and 1, 2 and 3
	costs, even := chain(16, 0, 0), partition.Partition{0, 4, 8, 12, 16}
	p := planner(t, c, slow)
	if problem := p.Problem(costs, balance.ByTime); problem.Fixed != nil {
		t.Errorf("by work alone stages have fixed seconds %v", problem.Fixed)
	}
	c.Balance.Gaps = "arrival"
	p = planner(t, c, slow)
	r, _, err := balance.Diffusion(p.Problem(costs, balance.ByTime), even, balance.DiffusionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Cuts.Count(2) >= 4 {
		t.Errorf("cuts %v leave the stage behind the slow link %d layers", r.Cuts, r.Cuts.Count(2))
	}
	if next := p.Faster(costs, even, r.Cuts); p.Makespan(costs, next) > p.Makespan(costs, even) {
		t.Errorf("%v was taken and is slower", next)
	}
}

// TestSlowRanks: a rank that the network calls slow gets less work, and what a
// plan prints of its stage is what it takes there.
func TestSlowRanks(t *testing.T) {
	slow := link
	slow.Slow = []float64{1, 3}
	p, costs := planner(t, settings(schedule.Kind1F1B, 16, 4, 8), slow), chain(16, 0, 0)
	cuts, err := p.Cuts(costs)
	if err != nil {
		t.Fatal(err)
	}
	a, err := p.At(cost.Stretch{Table: costs}, cuts)
	if err != nil {
		t.Fatal(err)
	}
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
