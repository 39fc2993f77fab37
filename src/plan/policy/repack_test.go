package policy

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/plan"
	"dynmo/src/plan/plantest"
	"dynmo/src/plan/search"
	"dynmo/src/profile"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// scaled returns a chain with other seconds: each layer's times a factor.
func scaled(t cost.Table, factor func(layer int) float64) cost.Table {
	t.Layers = slices.Clone(t.Layers)
	for l := range t.Layers {
		t.Layers[l] = t.Layers[l].WithSeconds(t.Layers[l].Stage().Scale(factor(l)))
	}
	return t
}

func times(x float64) func(int) float64 { return func(int) float64 { return x } }

// toPack returns settings of a chain that pack it, and balance it when that pays.
func toPack(kind schedule.Kind, layers, stages, microbatches int) config.Config {
	c := plantest.Settings(kind, layers, stages, microbatches)
	c.Balance.Every, c.Repack.Kind = "auto", "sustain"
	return c
}

// onNodes returns the balancer of settings on a network and nodes, in the first layout.
func onNodes(t *testing.T, c config.Config, dense cost.Table, nodes []int) *asked {
	t.Helper()
	return ask(t, c, plantest.Link, dense, Options{Nodes: nodes})
}

// allCuts calls visit with all cuts of a chain.
func allCuts(layers, stages int, visit func(partition.Partition)) {
	cuts := make(partition.Partition, stages+1)
	cuts[stages] = layers
	var place func(i int)
	place = func(i int) {
		if i == stages {
			visit(cuts)
			return
		}
		for cuts[i] = cuts[i-1] + 1; cuts[i] <= layers-(stages-i); cuts[i]++ {
			place(i + 1)
		}
	}
	place(1)
}

// fewestOf returns the fewest stages on which any cuts keep a step within a limit of
// seconds: by trying all.
func fewestOf(t *testing.T, c config.Config, costs cost.Table, limit float64) int {
	for stages := 1; stages < c.Parallel.Stages; stages++ {
		fewer := c
		fewer.Parallel.Stages = stages
		p, err := search.New(fewer, plantest.Link, nil)
		if err != nil {
			continue
		}
		least, s := math.Inf(1), begin(p, costs)
		allCuts(len(costs.Layers), s.Map.Virtual(), func(cuts partition.Partition) {
			if s.CutsFit(cuts) {
				least = min(least, s.Seconds(s.Layout(cuts)))
			}
		})
		if least <= limit {
			return stages
		}
	}
	return c.Parallel.Stages
}

// TestSustainAgreesWithBruteForce: the packing takes the fewest stages on which any cuts keep the
// throughput. It passes over numbers that the schedule does not allow.
func TestSustainAgreesWithBruteForce(t *testing.T) {
	packed := map[int]int{}
	for seed := range uint64(60) {
		kind := []schedule.Kind{schedule.Kind1F1B, schedule.KindGPipe, schedule.KindZBH1, schedule.KindInterleaved}[seed%4]
		draw := random.Keyed(seed, 77)
		c := toPack(kind, 9, 4, 4+4*int(seed%3))
		c.Parallel.Replicas = 1 + int(seed/4%2)
		if kind == schedule.Kind1F1B && seed%8 == 0 {
			c.Balance.MemoryLimitBytes = 8_000
		}
		dense := plantest.Chain(9, 2, seed)
		a := onNodes(t, c, dense, nil)
		a.after(dense, false)
		if a.now.Stages() < 4 {
			continue // a long layer lets even the dense model do with fewer
		}
		less := scaled(dense, func(int) float64 { return 0.2 + 0.8*draw.Float64() })
		a.after(less, true)
		limit := a.Balancer.(*balancer).allowedSeconds()
		want := fewestOf(t, c, less, limit)
		if a.now.Stages() != want {
			t.Errorf("seed %d, %s on %d replicas: %d stages, want %d", seed, kind, c.Parallel.Replicas, a.now.Stages(), want)
		}
		packed[want]++
	}
	if len(packed) < 3 {
		t.Errorf("stages %v: too few kinds of cases", packed)
	}
}

// TestPacksUnderEverySchedule: a model that shrank is packed under every schedule and every
// balancer. The layout is legal, keeps the wanted throughput, and uses the ranks that stay. The
// model continues to be balanced there.
func TestPacksUnderEverySchedule(t *testing.T) {
	dense := plantest.Chain(18, 1, 4)
	for i, kind := range []schedule.Kind{
		schedule.KindGPipe, schedule.Kind1F1B, schedule.KindInterleaved, schedule.KindZBH1, schedule.KindZBH2, schedule.KindZBV,
		schedule.KindZBInterleaved, schedule.KindList, schedule.KindAuto,
	} {
		for _, pack := range []string{"sustain", "first-fit"} {
			c := toPack(kind, 18, 4, 8)
			c.Repack.Kind, c.Parallel.Replicas = pack, 1+i%2
			c.Balance.MemoryLimitBytes = 60_000
			if k := i % 3; k > 0 && kind != schedule.KindInterleaved && kind != schedule.KindZBV && kind != schedule.KindZBInterleaved {
				c.Balance.Kind, c.Balance.By = "diffusion", []string{"", "time", "param"}[k]
			}
			name := fmt.Sprintf("%s, %s, %s by %s", kind, pack, c.Balance.Kind, c.Balance.By)
			a := onNodes(t, c, dense, nil)
			a.after(dense, false)
			less := scaled(dense, times(0.3))
			for l := range less.Layers {
				less.Layers[l].NonZeros /= 3
			}
			why := a.after(less, true)
			if why.Pack == nil || why.Pack.Kept != "" || !why.Decided || a.now.Stages() == 4 || why.Pack.Stages != a.now.Stages() || !(why.Predicted > 0) {
				t.Errorf("%s: %+v of %+v on %d stages, want fewer", name, why.Pack, why, a.now.Stages())
				continue
			}
			if err := a.now.Check(18); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			p, err := problem(t, c, plantest.Link).Match(a.now)
			expect.OK(t, err)
			if most := slices.Max(p.Step(less, a.now).Bytes(a.now)); most > c.Balance.MemoryLimitBytes {
				t.Errorf("%s: %d bytes on a rank", name, most)
			}
			if pack == "sustain" && why.Pack.Throughput < 0.98 {
				t.Errorf("%s: throughput %v", name, why.Pack.Throughput)
			}
			for range 5 {
				a.after(less, false)
			}
		}
	}
}

// TestMerges: the paper's algorithm 4 with its errata.
func TestMerges(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes []int64
		limit int64
		least int
		want  []int
	}{
		{"pairs", []int64{3, 3, 3, 3}, 6, 1, []int{0, 2}},
		{"one byte short", []int64{3, 3, 3, 3}, 5, 1, nil},
		{"a source that gave has nothing left", []int64{1, 1, 9, 9}, 4, 1, []int{0}},
		{"all onto one", []int64{1, 2, 3, 4}, 10, 1, []int{0, 1, 2}},
		{"to the target", []int64{1, 1, 1, 1, 1}, 10, 3, []int{0, 1}},
		{"no limit", []int64{5, 5, 5}, 0, 2, []int{0}},
		{"neighbours only", []int64{1, 9, 1}, 9, 1, nil},
		{"one stage", []int64{5}, 9, 1, nil},
	} {
		if got := stagesToMerge(c.bytes, c.limit, c.least); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v gives stages %v away, want %v", c.name, c.bytes, got, c.want)
		}
	}
}

// TestFirstFit: neighbours are merged in one piece, once the load is below the settings'
// share, to no fewer stages than these say.
func TestFirstFit(t *testing.T) {
	dense := plantest.Chain(16, 0, 0)
	c := toPack(schedule.KindGPipe, 16, 4, 4)
	c.Repack.Kind, c.Repack.Below, c.Repack.Stages, c.Balance.MemoryLimitBytes = "first-fit", 0.6, 1, 18_000
	a := onNodes(t, c, dense, nil)
	a.after(dense, false)
	if a.after(scaled(dense, times(0.7)), true); a.now.Stages() != 4 {
		t.Errorf("%d stages at 0.7 of the load, want 4", a.now.Stages())
	}
	// A stage of 4 layers has 4·1600 bytes and 4 microbatches in flight of 400, 8000 in all.
	a.after(scaled(dense, times(0.5)), true)
	if want := (partition.Partition{0, 8, 16}); !a.now.Cuts.Equal(want) {
		t.Errorf("cuts %v, want %v", a.now.Cuts, want)
	}
	c.Repack.Stages = 3
	a = onNodes(t, c, dense, nil)
	a.after(dense, false)
	a.after(scaled(dense, times(0.5)), true)
	if want := (partition.Partition{0, 8, 12, 16}); !a.now.Cuts.Equal(want) {
		t.Errorf("cuts %v, want %v", a.now.Cuts, want)
	}
}

// TestMemoryLimitsPacking: ranks that would be too full keep the model on more stages.
func TestMemoryLimitsPacking(t *testing.T) {
	dense := plantest.Chain(16, 0, 0)
	for limit, want := range map[int64]int{0: 1, 18_000: 2, 9_500: 4} {
		c := toPack(schedule.KindGPipe, 16, 4, 4)
		c.Balance.MemoryLimitBytes = limit
		a := onNodes(t, c, dense, nil)
		a.after(dense, false)
		why := a.after(scaled(dense, times(0.05)), true)
		if a.now.Stages() != want || (want == 4) != (why.Pack != nil && why.Pack.Kept == plan.KeptMemory) {
			t.Errorf("limit %d: %d stages, %+v, want %d", limit, a.now.Stages(), why.Pack, want)
		}
	}
}

// TestPacksWholeNodes: of the numbers of stages that need as few nodes the fastest is
// taken, and none that frees no node.
func TestPacksWholeNodes(t *testing.T) {
	dense := plantest.Chain(16, 0, 0)
	for _, c := range []struct {
		name  string
		nodes []int
		unit  string
		share float64
		want  int
		kept  plan.Kept
	}{
		{"ranks", []int{0, 0, 0, 1, 1, 1}, "rank", 0.75, 4, ""},
		{"two ranks fewer free no node", []int{0, 0, 0, 1, 1, 1}, "node", 0.75, 6, plan.KeptNodes},
		{"half of the nodes", []int{0, 0, 0, 1, 1, 1}, "node", 0.25, 3, ""},
		{"pairs", []int{0, 0, 1, 1, 2, 2}, "node", 0.5, 4, ""},
		{"one node", nil, "node", 0.1, 6, plan.KeptNodes},
	} {
		s := toPack(schedule.Kind1F1B, 16, 6, 24)
		s.Repack.Unit = c.unit
		a := onNodes(t, s, dense, c.nodes)
		a.after(dense, false)
		why := a.after(scaled(dense, times(c.share)), true)
		if a.now.Stages() != c.want || why.Pack == nil || why.Pack.Kept != c.kept {
			t.Errorf("%s: %d stages, %+v, want %d, %q", c.name, a.now.Stages(), why.Pack, c.want, c.kept)
		}
	}
}

// measured returns costs that were measured in some steps with a relative error.
func measured(t cost.Table, steps int, owners partition.Owners, seed uint64) cost.Estimate {
	draw := random.Keyed(seed, 31)
	e := cost.Estimate{Layer: make([]float64, len(t.Layers)), Stage: make([]float64, slices.Max(owners)+1), On: owners}
	error := 0.1 / math.Sqrt(float64(min(steps, 64)))
	common := make([]float64, len(e.Stage))
	for s := range e.Stage {
		e.Stage[s], common[s] = error/2, error/2*draw.NormFloat64()
	}
	e.Table = scaled(t, func(l int) float64 {
		e.Layer[l] = error
		return 1 + error*draw.NormFloat64() + common[owners[l]]
	})
	return e
}

// TestNoiseNeverPacks: a model that did not shrink stays on its stages, whatever noise says,
// before and after it changes into another that costs the same; one that shrank is packed.
func TestNoiseNeverPacks(t *testing.T) {
	dense := plantest.Chain(24, 0.2, 1)
	for _, kind := range []string{"sustain", "first-fit"} {
		for seed := range uint64(4) {
			c := toPack(schedule.Kind1F1B, 24, 6, 12)
			c.Repack.Kind = kind
			if kind == "first-fit" {
				c.Balance.MemoryLimitBytes = 100_000
			}
			a := onNodes(t, c, dense, nil)
			step := func(i int, costs cost.Table, changed bool) {
				m := profile.Measurement{Measurement: cost.Measurement{Table: costs}, Changed: changed, Summary: trace.Summary{End: 1}}
				m.Estimate = measured(costs, i%100, a.now.Owners(), seed<<20+uint64(i))
				if i%100 == 0 || i == 20 { // nothing is known of the first
					m.Estimate.Layer[0] = math.Inf(1)
				}
				a.shown(m)
			}
			for i := range 400 {
				if step(i, dense, i == 20 || i > 0 && i%100 == 0); a.now.Stages() != 6 {
					t.Fatalf("%s, seed %d: %d stages after step %d", kind, seed, a.now.Stages(), i)
				}
			}
			known := a.Balancer.(*balancer).Reference
			less := scaled(dense, times(0.6))
			for i := 400; i < 500; i++ {
				step(i, less, i == 400)
			}
			if now := a.Balancer.(*balancer).Reference; now != known {
				t.Errorf("%s, seed %d: reference %+v, %+v once the model had changed", kind, seed, known, now)
			}
			if a.now.Stages() >= 6 {
				t.Errorf("%s, seed %d: still on %d stages", kind, seed, a.now.Stages())
			}
		}
	}
}

// TestPackingIsSaved: a balancer that is saved beside a packing and restored decides as the
// one that went on.
func TestPackingIsSaved(t *testing.T) {
	dense := plantest.Chain(16, 1, 3)
	for _, kind := range []schedule.Kind{schedule.Kind1F1B, schedule.KindAuto} {
		c := toPack(kind, 16, 4, 8)
		a := onNodes(t, c, dense, nil)
		for i := range 12 {
			text, err := a.Balancer.(*balancer).Save()
			expect.OK(t, err)
			b := onNodes(t, c, dense, nil)
			expect.OK(t, b.Balancer.(*balancer).Restore(text, a.now))
			b.now = a.now
			costs := dense
			if i >= 3 {
				costs = scaled(dense, times(0.7-0.05*float64(i/3)))
			}
			a.after(costs, i > 0 && i%3 == 0)
			b.after(costs, i > 0 && i%3 == 0)
			if !a.now.Equal(b.now) {
				t.Fatalf("%s, step %d: %v, %v restored", kind, i, a.now, b.now)
			}
		}
		if a.now.Stages() == 4 {
			t.Errorf("%s: not packed", kind)
		}
	}
}
