package report

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/record"
)

// counting returns a run of steps with some settings, each step with the same counts.
func counting(t *testing.T, steps int, sets []string, counts ...record.LayerCounts) Run {
	t.Helper()
	c, err := config.Load("", append([]string{"model.blocks=4", "model.sequence=64"}, sets...))
	expect.OK(t, err)
	r := Run{Config: c}
	for step := range steps {
		r.Metrics = append(r.Metrics, record.Metrics{Step: step, BatchSize: 1, Counts: counts})
	}
	return r
}

// TestWork: behind an exit there are fewer tokens, and a routed block takes some of them. Of
// attention only its scores are known. A name that the chain does not have is left out.
func TestWork(t *testing.T) {
	nan := math.NaN()
	for name, c := range map[string]struct {
		sets   []string
		counts []record.LayerCounts
		what   string
		want   []float64 // by layer
		mean   float64   // of the blocks, in per cent
	}{
		"exit": {
			[]string{"dynamic.kind=exit", "exit.after=1,3"},
			[]record.LayerCounts{{Layer: "exit.0", Name: "exit", Values: []int64{64, 16}}, {Layer: "exit.1", Name: "exit", Values: []int64{48, 32}}, {Layer: "exit.7", Name: "exit", Values: []int64{48, 32}}},
			"tokens", []float64{1, 1, 1, 0.75, 0.75, 0.75, 0.25, 0.25}, 100 * 2.75 / 4,
		},
		"mod": {
			[]string{"dynamic.kind=mod"},
			[]record.LayerCounts{{Layer: "block.1", Name: "routed", Values: []int64{64, 8, 0, 0, 0}}, {Layer: "block.3", Name: "routed", Values: []int64{64, 16, 0, 0, 0}}},
			"tokens", []float64{1, 1, 0.125, 1, 0.25, 1}, 100 * 2.375 / 4,
		},
		"attention": {
			[]string{"dynamic.kind=attention", "model.grain=half"},
			[]record.LayerCounts{{Layer: "block.0.attention", Name: "pairs", Values: []int64{208, 2080}}, {Layer: "block.2.attention", Name: "pairs", Values: []int64{416, 2080}}},
			"scores", []float64{nan, 0.1, nan, nan, nan, 0.2, nan, nan, nan, nan}, 15,
		},
	} {
		w := counting(t, 3, c.sets, c.counts...).work()
		if w.What != c.what || w.shares == nil {
			t.Errorf("%s: %+v", name, w)
			continue
		}
		if diff := cmp.Diff(c.want, w.shares[2], cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-12)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		r := counting(t, 3, c.sets, c.counts...)
		if y := w.chart(r).Curves[0].Y; len(y) != 3 || math.Abs(float64(y[0])-c.mean) > 1e-9 {
			t.Errorf("%s: mean %v, want %v", name, y, c.mean)
		}
		if v := w.view(0); len(v.Boxes) == 0 || v.Boxes[0].Width != 3 {
			t.Errorf("%s: %+v", name, v.Boxes)
		}
	}
	if w := counting(t, 3, nil).work(); w.shares != nil || w.view(0) != nil {
		t.Errorf("%+v of a run that counts nothing", w)
	}
}

// TestScaleOfWork: the colours of a map of shares end near the largest of them.
func TestScaleOfWork(t *testing.T) {
	for _, c := range []struct {
		pairs int64 // of 1000
		top   float64
		want  string // the middle colour
	}{{0, 0.01, "0.5 %"}, {90, 0.1, "5 %"}, {100, 0.1, "5 %"}, {101, 0.15, "7.5 %"}, {790, 0.8, "40 %"}, {1000, 1, "50 %"}} {
		v := counting(t, 3, []string{"dynamic.kind=attention"}, record.LayerCounts{Layer: "block.1", Name: "pairs", Values: []int64{c.pairs, 1000}}).work().view(0)
		if got := v.Scale()[2].Label; v.Top != c.top || got != c.want {
			t.Errorf("%d: up to %v, in the middle %s, want %v and %s", c.pairs, v.Top, got, c.top, c.want)
		}
		if v.Down()[2].Label != "block 1" {
			t.Errorf("layers are called %v", v.Down())
		}
	}
}

// TestFrozen: layers are frozen from an event to the next, or to a thaw, also beside
// another kind.
func TestFrozen(t *testing.T) {
	r := counting(t, 20, nil)
	event := func(step int, what string, layers float64) {
		r.Events = append(r.Events, record.Event{Step: step, Kind: record.Dynamic, Detail: map[string]any{"what": what, "layers": layers}})
	}
	if r.frozenChart(r.frozen()) != nil {
		t.Error("a chart of no frozen layers")
	}
	event(3, "freeze", 2)
	event(5, "prune", 0)
	event(8, "prune+freeze", 4)
	event(12, "thaw", 4)
	got := r.frozen()
	if diff := cmp.Diff([]frozen{{3, 8, 2}, {8, 12, 4}}, got, cmp.AllowUnexported(frozen{})); diff != "" {
		t.Error(diff)
	}
	if y := r.frozenChart(got).Curves[0].Y; y[2] != 0 || y[3] != 2 || y[11] != 4 || y[12] != 0 {
		t.Error(y)
	}
	for i := range r.Metrics {
		r.Metrics[i].Cuts, r.Metrics[i].LayersPerStage = []int{0, 6}, []int{6}
	}
	h, err := r.heat(nil, got, places{})
	expect.OK(t, err)
	if diff := cmp.Diff([]box{{Step: 3, Width: 5, Height: 2}, {Step: 8, Width: 4, Height: 4}}, h.Hatched); diff != "" {
		t.Error(diff)
	}
	if got, want := string(h.Place(h.Hatched[0])), "left:15%;top:0%;width:calc(25% + .5px);height:33.33%"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
