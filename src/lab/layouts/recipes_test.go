package layouts

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/lab/modelcost"
	"dynmo/src/schedule"
)

// recipe is a published layout.
type recipe struct {
	Model, Source, Layout        string
	For                          string
	Costs                        string // configuration of testdata of modelcost; its multiply-adds are the costs
	Table                        string // or a table of measured seconds in testdata
	Sequence                     int
	Stages, Chunks, Microbatches int
}

// layers returns the costs, and the name of their unit. Multiply-adds are in those of a pass forward and
// back through the last block; a pass back has twice those of a pass forward.
func (r recipe) layers(t *testing.T) ([]cost.Layer, string) {
	t.Helper()
	if r.Table != "" {
		m := readMeasured(t, r.Table)
		m.fill()
		return m.layers(), "s"
	}
	model, err := modelcost.Read("../modelcost/testdata/" + r.Costs + ".json")
	expect.OK(t, err)
	layers, err := model.Layers(modelcost.Work{Sequence: r.Sequence, Batch: 1, Tensor: 1, Experts: 1})
	expect.OK(t, err)
	unit := 0.0
	for _, l := range layers {
		if strings.HasPrefix(l.Name, "block") {
			unit = 3 * l.MultiplyAdds
		}
	}
	var list []cost.Layer
	for _, l := range layers {
		x := l.MultiplyAdds / unit
		list = append(list, cost.Layer{Name: l.Name, Forward: x, BackwardInput: x, BackwardWeight: x})
	}
	return list, "blocks"
}

// TestRecipes simulates published layouts and ours, on the same costs and the trainer's schedule. Ours are
// never slower, and at least 1.10 times as fast once. It writes results/layouts.txt with -update.
func TestRecipes(t *testing.T) {
	text, err := os.ReadFile("testdata/recipes.json")
	expect.OK(t, err)
	var recipes []recipe
	expect.OK(t, json.Unmarshal(text, &recipes))
	var out, sources strings.Builder
	fmt.Fprint(&out, `command: go test ./src/lab/layouts -run TestRecipes -update
clock: sim, without messages; costs are multiply-adds of a microbatch, in those of a block (forward and backward),
  or measured seconds (s), whose missing backward of the head is taken as twice its forward

`)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "#\tmodel\ttrainer\tstages\tmicrobatches\tunit\trecipe\tours\tbound\trecipe/ours\tlayout of the recipe\tours\n")
	most := 0.0
	for n, r := range recipes {
		trainer, err := TrainerNamed(r.For)
		expect.OK(t, err)
		layers, unit := r.layers(t)
		p := Problem{Stages: r.Stages, Chunks: r.Chunks, Microbatches: r.Microbatches, Schedule: schedule.Kind1F1B}
		if r.Chunks > 1 {
			p.Schedule = schedule.KindInterleaved
		}
		c, err := NewChain(layers)
		expect.OK(t, err)
		expect.OK(t, trainer.rules(&p, c, false))
		p.Slower = nil
		present, err := trainer.read(r.Layout, c, p)
		expect.OK(t, err)
		v, err := newSolver(p)
		expect.OK(t, err)
		units, ok := v.unitsOf(present)
		if !ok {
			t.Fatalf("%s cuts where the search may not", r.Layout)
		}
		before := v.evaluate(units)
		found, err := findBest(budget/5, p, nil) // without the recipe among its beginnings
		expect.OK(t, err)
		best := found.Best[0]
		gain := before / best.Seconds
		most = max(most, gain)
		if gain < 1-1e-9 {
			t.Errorf("%s, %s: %.4f, ours %.4f (%s)", r.Model, r.Layout, before, best.Seconds, trainer.brief(best.Cuts, c))
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%dx%d\t%d\t%s\t%.2f\t%.2f\t%.2f\t%.3f\t%s\t%s\n", n+1, r.Model, r.For, r.Stages, r.Chunks, r.Microbatches, unit,
			before, best.Seconds, best.Bound, gain, r.Layout, trainer.brief(best.Cuts, c))
		fmt.Fprintf(&sources, "%2d  %s\n", n+1, r.Source)
	}
	expect.OK(t, w.Flush())
	if most < 1.10 {
		t.Errorf("at most %.3f times as fast, want 1.10", most)
	}
	expect.Golden(t, "../../../results/layouts.txt", out.String()+"\nbound: seconds that no order of the work of our layout beats\n\n"+sources.String())
}
