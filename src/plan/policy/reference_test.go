package policy

import (
	"math"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/plan"
	"dynmo/src/plan/plantest"
	"dynmo/src/profile"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// TestReferenceIsDense: what the model takes once it has changed says nothing of the dense
// one, however few steps that was seen in.
func TestReferenceIsDense(t *testing.T) {
	dense := plantest.Chain(24, 0.2, 1)
	a := onNodes(t, toPack(schedule.Kind1F1B, 24, 6, 12), dense, nil)
	for i := range 70 {
		costs := dense
		if i >= 5 {
			costs = scaled(dense, times(0.9))
		}
		m := profile.Measurement{Measurement: cost.Measurement{Table: costs}, Changed: i == 5, Summary: trace.Summary{End: 1}}
		m.Estimate = measured(costs, 1+(i+95)%100, a.now.Owners(), uint64(i))
		before := a.Balancer.(*balancer).Reference.Seconds
		_, why, err := a.Decide(m, a.now)
		expect.OK(t, err)
		if i >= 5 && (before == 0 || why.Reference.Seconds != before) {
			t.Fatalf("step %d: reference %v, %v before it", i, why.Reference.Seconds, before)
		}
	}
}

// TestSumsAreNoLoad: a model has shrunk by what its layers take, however long gradients are summed.
func TestSumsAreNoLoad(t *testing.T) {
	c := toPack(schedule.Kind1F1B, 16, 4, 8)
	c.Parallel.Replicas = 2
	dense := plantest.Chain(16, 0, 0)
	for l := range dense.Layers {
		dense.Layers[l].Bytes.Gradients = 1 << uint(8+l/2*2) // the last layers' sums take longest
	}
	a := onNodes(t, c, dense, nil)
	a.after(dense, false)
	b := a.Balancer.(*balancer)
	b.face(cost.Estimate{Table: scaled(dense, times(0.5))}, a.now)
	if total(b.now.CutProblem().Seconds) == b.load(b.now.Costs) {
		t.Fatal("no sum weighs: the test shows nothing")
	}
	if !b.hasShrunk(0.55) {
		t.Error("half of the load is not seen")
	}
}

// TestReferenceOutlivesStages: what the dense model took is known to a balancer that goes
// on on other stages, and packing goes by it.
func TestReferenceOutlivesStages(t *testing.T) {
	dense := plantest.Chain(16, 0, 0)
	a := onNodes(t, toPack(schedule.Kind1F1B, 16, 4, 8), dense, nil)
	a.after(dense, false)
	known := a.Balancer.(*balancer).Reference
	if s := begin(problem(t, toPack(schedule.Kind1F1B, 16, 4, 8), plantest.Link), dense); known.Seconds != s.Seconds(s.Layout(partition.Partition{0, 4, 8, 12, 16})) || known.Load != total(dense.Seconds()) {
		t.Errorf("%+v of the dense model", known)
	}
	less := scaled(dense, times(0.3))
	for _, knows := range []bool{false, true} {
		b := onNodes(t, toPack(schedule.Kind1F1B, 16, 2, 8), dense, nil)
		if knows {
			expect.OK(t, b.Balancer.SetReference(known))
		}
		b.after(less, false)
		if want := map[bool]int{false: 2, true: 1}[knows]; b.now.Stages() != want {
			t.Errorf("on %d stages where the dense model is known: %v, want %d", b.now.Stages(), knows, want)
		}
	}
	for _, wrong := range []plan.Reference{{Seconds: -1}, {Seconds: math.NaN()}, {Load: math.Inf(1)}, {Seen: 65}} {
		if err := a.Balancer.SetReference(wrong); err == nil {
			t.Errorf("%+v is taken", wrong)
		}
	}
}
