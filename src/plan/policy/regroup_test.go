package policy

import (
	"math"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/plan"
	"dynmo/src/plan/plantest"
	"dynmo/src/plan/search"
	"dynmo/src/schedule"
)

// adapted packs 16 layers onto two of four stages, once they cost less, and returns the
// balancer behind that.
func adapted(t *testing.T, kind, microbatches string, limit int64) (*asked, *plan.Packing) {
	t.Helper()
	dense := plantest.Chain(16, 0, 0)
	c := toPack(schedule.Kind1F1B, 16, 4, 32)
	c.Repack.Kind, c.Repack.Microbatches, c.Repack.Stages, c.Repack.Tolerance = kind, microbatches, 2, 0.2
	c.Balance.MemoryLimitBytes = limit
	a := onNodes(t, c, dense, nil)
	a.after(dense, false)
	a.after(dense, false)
	why := a.after(scaled(dense, times(0.3)), true)
	for range 3 {
		if why.Pack == nil || why.Pack.Kept != "" {
			why = a.after(scaled(dense, times(0.3)), false)
		}
	}
	if a.now.Stages() != 2 || why.Pack == nil {
		t.Fatalf("%s, %s: %d stages, %+v, want two", kind, microbatches, a.now.Stages(), why.Pack)
	}
	return a, why.Pack
}

// TestPackingTakesLargerMicrobatches: a packing takes the fewest microbatches, at least four for
// each stage, with which memory suffices and a step stays fast enough. If the settings keep
// microbatches, they stay.
func TestPackingTakesLargerMicrobatches(t *testing.T) {
	for _, c := range []struct {
		name, kind, microbatches string
		limit                    int64
		want                     int
	}{
		{"kept", "sustain", "keep", 0, 32},
		{"four for each stage", "sustain", "adapt", 0, 8},
		{"memory refuses eight", "sustain", "adapt", 17_000, 16},
		{"memory refuses all", "sustain", "adapt", 15_000, 32},
		{"first-fit", "first-fit", "adapt", 17_000, 16},
		{"first-fit keeps", "first-fit", "keep", 17_000, 32},
	} {
		a, why := adapted(t, c.kind, c.microbatches, c.limit)
		if got := a.now.Schedule.Microbatches; got != c.want || why.Exact != (got == 32) {
			t.Errorf("%s: %d microbatches, exact %v, want %d", c.name, got, why.Exact, c.want)
		}
	}
}

// TestLargerMicrobatchesAreForeseen: the step that is predicted is the one that costs of
// larger microbatches take; later decisions go by these, and change nothing.
func TestLargerMicrobatchesAreForeseen(t *testing.T) {
	a, why := adapted(t, "sustain", "adapt", 0)
	b := a.Balancer.(*balancer)
	larger := scaled(plantest.Chain(16, 0, 0), times(0.3)).Regroup(32, 8)
	p, err := b.problem.Match(a.now)
	expect.OK(t, err)
	if p.Config.Parallel.MicrobatchSize != 4*b.problem.Config.Parallel.MicrobatchSize || search.Shape(p.Config) == search.Shape(b.problem.Config) {
		t.Errorf("%d sequences in a microbatch: %s", p.Config.Parallel.MicrobatchSize, search.Shape(p.Config))
	}
	if seconds := p.Step(larger, a.now).Seconds(a.now); math.Abs(b.Reference.Seconds/seconds-why.Throughput) > 1e-9 {
		t.Errorf("throughput %v is predicted, a step of %v seconds has %v", why.Throughput, seconds, b.Reference.Seconds/seconds)
	}
	text, err := b.Save()
	expect.OK(t, err)
	expect.OK(t, b.Restore(text, a.now))
	packed := a.now
	for range 12 {
		if a.after(larger, false); !a.now.Equal(packed) {
			t.Fatalf("from %v to %v on the same costs", packed, a.now)
		}
	}
}
