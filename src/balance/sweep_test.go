package balance

import (
	"math/rand/v2"
	"slices"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/partition"
)

// secondsOf returns a chain whose l-th layer takes at(l).
func secondsOf(layers int, at func(l int) float64) []float64 {
	chain := make([]float64, layers)
	for l := range chain {
		chain[l] = at(l)
	}
	return chain
}

// stepped returns four runs of equal layers.
func stepped(layers int) []float64 {
	return secondsOf(layers, func(l int) float64 { return [...]float64{1, .4, 2.5, .1}[4*l/layers] })
}

// TestDiffusionPassesPlateaus: windows of three stages stuck on these chains, so
// far over the optimum as before says, because work had to pass a run of stages.
func TestDiffusionPassesPlateaus(t *testing.T) {
	rnd := rand.New(rand.NewPCG(31, 32))
	falling := func(layers int) []float64 {
		return secondsOf(layers, func(l int) float64 { return float64(layers - l) })
	}
	for _, c := range []struct {
		name   string
		chain  []float64
		stages int
		before float64
	}{
		{"steps, 36 on 12", stepped(36), 12, 0.25},
		{"steps, 48 on 16", stepped(48), 16, 0.25},
		{"steps, 72 on 24", stepped(72), 24, 0.1628},
		{"steps, 10000 on 1000", stepped(10_000), 1000, 1.25},
		{"falling, 72 on 24", falling(72), 24, 0.0148},
		{"falling, 512 on 128", falling(512), 128, 0.0688},
		{"falling, 10000 on 1000", falling(10_000), 1000, 0.6805},
		{"±15 %, 10000 on 1000", secondsOf(10_000, func(int) float64 { return 0.85 + 0.3*rnd.Float64() }), 1000, 0.0260},
	} {
		p := Problem{Seconds: c.chain, Stages: c.stages}
		uniform, err := Uniform(p)
		expect.OK(t, err)
		exact, err := Partition(p)
		expect.OK(t, err)
		got, d, err := Diffusion(p, uniform.Cuts, DiffusionOptions{})
		expect.OK(t, err)
		if gap := Gap(got.Bottleneck, exact.Bottleneck); gap > 1e-12 {
			t.Errorf("%s: %.4f over the optimum, before %.4f, want 0", c.name, gap, c.before)
		}
		t.Logf("%s: %d rounds, %d sweeps, re-cut %d times", c.name, d.Rounds, d.Sweeps, len(d.Squares)-1)
		if d.Sweeps > 60 {
			t.Errorf("%s: %d sweeps, want at most 60", c.name, d.Sweeps)
		}
	}
}

// TestDiffusionReachesTheOptimum starts anywhere: on equal stages without memory
// limits it always ends on the smallest bottleneck, else nearly always.
func TestDiffusionReachesTheOptimum(t *testing.T) {
	rnd := rand.New(rand.NewPCG(21, 22))
	solved, off, missed := 0, 0, 0
	for n := range 1000 {
		p, present := diffusible(rnd)
		exact, err := Partition(p)
		if err != nil {
			continue
		}
		solved++
		got, _, err := Diffusion(p, present, DiffusionOptions{})
		alike := p.Slow == nil && p.Capacity == nil
		switch {
		case err != nil && !alike:
			missed++
		case err != nil:
			t.Fatalf("case %d: %v", n, err)
		case Gap(got.Bottleneck, exact.Bottleneck) <= 1e-12:
		case alike:
			t.Fatalf("case %d: bottleneck %v, want %v", n, got.Bottleneck, exact.Bottleneck)
		default:
			off++
		}
	}
	t.Logf("of %d problems that have an answer %d are off the optimum, %d found none", solved, off, missed)
	if off*100 > 2*solved || missed*500 > solved {
		t.Errorf("of %d problems that have an answer %d are off the optimum, %d found none", solved, off, missed)
	}
}

// TestSweepStaysNearItsTargets: cuts leave their targets only where the smallest
// bottleneck asks for it.
func TestSweepStaysNearItsTargets(t *testing.T) {
	for _, c := range []struct {
		name    string
		chain   []float64
		targets []float64
		want    partition.Partition
	}{
		{"nearest", []float64{1, 1, 1, 1, 1, 1}, []float64{0, 2.4, 3.6}, partition.Partition{0, 2, 4, 6}},
		{"of two nearest ones the earlier", []float64{1, 1, 1, 1, 1}, []float64{0, 2.5}, partition.Partition{0, 2, 5}},
		{"one stage gives way", []float64{3, 1, 1, 1, 1, 1}, []float64{0, 4, 6, 7}, partition.Partition{0, 1, 4, 5, 6}},
		{"a run gives way", []float64{1, 1, 1, 1, 1, 1, 1, 1, 4}, []float64{0, 1, 2, 3}, partition.Partition{0, 1, 4, 8, 9}},
		{"never empty", []float64{9, 1, 1, 1}, []float64{0, 9, 9, 9}, partition.Partition{0, 1, 2, 3, 4}},
	} {
		p := Problem{Seconds: c.chain, Stages: len(c.targets)}
		uniform, err := Uniform(p)
		expect.OK(t, err)
		g := participant{stages: p.stagesAt(uniform.Cuts), link: inMemory{}}
		expect.OK(t, g.meet())
		got, err := g.sweep(c.targets, new(Descent))
		expect.OK(t, err)
		if !got.Equal(c.want) {
			t.Errorf("%s: cuts %v, want %v", c.name, got, c.want)
		}
	}
}

// counted counts the messages that a stage exchanges.
type counted struct {
	Link
	messages, longest int
}

func (c *counted) Exchange(stage int, out []float64) ([]float64, error) {
	c.messages, c.longest = c.messages+1, max(c.longest, len(out))
	return c.Link.Exchange(stage, out)
}

// TestSweepMessages: a sweep crosses every edge once, with few numbers. Its result equals that of a
// sweep in memory, whoever holds the layers.
func TestSweepMessages(t *testing.T) {
	p := Problem{Seconds: stepped(48), Stages: 6}
	uniform, err := Uniform(p)
	expect.OK(t, err)
	targets := []float64{0, 3, 10, 20, 30, 40}
	g := participant{stages: p.stagesAt(uniform.Cuts), link: inMemory{}}
	expect.OK(t, g.meet())
	var d Descent
	want, err := g.sweep(targets, &d)
	expect.OK(t, err)
	overMessages(p.Stages, func(s int, link Link) {
		c := counted{Link: link}
		g := participant{stages: []Stage{p.Stage(uniform.Cuts, s)}, link: &c}
		var own Descent
		err := g.meet()
		var got partition.Partition
		if err == nil {
			got, err = g.sweep(targets, &own)
		}
		edges := 2
		if s == 0 || s == p.Stages-1 {
			edges = 1
		}
		if err != nil || !got.Equal(want) || own.Sweeps != d.Sweeps {
			t.Errorf("stage %d: cuts %v after %d sweeps (%v), want %v after %d", s, got, own.Sweeps, err, want, d.Sweeps)
		}
		if c.messages != edges*(1+d.Sweeps) || c.longest > 16 { // one more passes the chain's sums
			t.Errorf("stage %d: %d messages of up to %d numbers over %d edges in %d sweeps", s, c.messages, c.longest, edges, d.Sweeps)
		}
	})
}

// TestSweepKeepsToMemory: the cuts fit where any do, though no stage may take what
// its bottleneck alone would give it.
func TestSweepKeepsToMemory(t *testing.T) {
	p := Problem{Seconds: slices.Repeat([]float64{1}, 8), StaticBytes: slices.Repeat([]int64{1}, 8), Stages: 4, Capacity: []int64{1, 4, 2, 1}}
	g := participant{stages: p.stagesAt(partition.Partition{0, 2, 4, 6, 8}), link: inMemory{}}
	expect.OK(t, g.meet())
	got, err := g.sweep([]float64{0, 2, 4, 6}, new(Descent))
	expect.OK(t, err)
	if want := (partition.Partition{0, 1, 5, 7, 8}); !got.Equal(want) {
		t.Errorf("cuts %v, want %v", got, want)
	}
	g.kinds[1].Capacity = 3
	if got, err := g.sweep([]float64{0, 2, 4, 6}, new(Descent)); got != nil || err != nil {
		t.Errorf("cuts %v (%v) of 8 bytes where 7 fit", got, err)
	}
}
