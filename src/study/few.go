package study

import (
	"fmt"
	"slices"
	"strings"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/model"
	"dynmo/src/plan/search"
)

// Few is a model of few blocks that has a layer like each one of a larger model.
type Few struct {
	Config config.Config
	larger config.Config
	like   [][]int   // by layer of the larger model: those of the few that compute alike
	gone   []float64 // by layer of the larger model: share of the tokens that leave behind it in the end
}

// NewFew returns the few blocks of a model: the first two, or where there are exits four,
// so that there is a routed block and one that is not, each with an exit behind it and
// without. No token leaves them early. Of blocks with experts that all take all tokens it
// is one: they are large.
func NewFew(c config.Config) (Few, error) {
	f := Few{Config: c, larger: c}
	blocks, exits := 2, 0
	if c.Dynamic.Kind == "moe" {
		blocks = 1
	}
	if c.Dynamic.Has("exit") {
		blocks, exits = 4, c.Exit.Count(c.Model.Blocks)
		f.Config.Exit.After, f.Config.Exit.Share, f.Config.Exit.Threshold = "2,3", 0, 2
	}
	if c.Model.Blocks <= blocks {
		return f, fmt.Errorf("model.blocks = %d: wanted more than the %d that are measured", c.Model.Blocks, blocks)
	}
	f.Config.Model.Blocks = blocks
	few := model.FromConfig(f.Config).Chain()
	for _, d := range model.FromConfig(c).Chain() {
		var like []int
		for i := range few {
			if d.Alike(few[i]) {
				like = append(like, i)
			}
		}
		gone := 0.0
		if d.Kind == model.Exit {
			gone = c.Exit.Share / float64(exits)
		}
		f.like, f.gone = append(f.like, like), append(f.gone, gone)
	}
	return f, nil
}

// Experts lets the few have so few experts in a block, as many as a token goes to at least,
// and as many on each replica or in each group as on any other.
// All together work on as many rows, so that their products take as long; more rows for
// each, and fewer gradients to add to, take a little less.
func (f Few) Experts(n int) (Few, error) {
	m := f.Config.Moe
	if !f.Config.Dynamic.Has("moe") || n < m.Top || n > m.Experts {
		return f, fmt.Errorf("%d experts: want dynamic.kind with moe, and moe.top = %d to moe.experts = %d", n, m.Top, m.Experts)
	}
	f.Config.Moe.Experts = n
	if err := f.Config.Validate(); err != nil {
		return f, fmt.Errorf("%d experts: %w", n, err)
	}
	return f, nil
}

// Whole returns the costs of the larger model, each layer's those of its like in the few,
// their mean. taken is the share of the tokens that the second block of the few took when
// it was measured, 1 if it takes all. Where exits follow a share of the tokens, it is
// reached (see dynamic.Leave), by which no memory becomes free; predictors take as many
// tokens as they are to learn.
func (f Few) Whole(few cost.Table, taken float64) cost.Table {
	few.Layers = slices.Clone(few.Layers)
	if f.Config.Dynamic.Has("mod") && f.Config.Mod.Route == "predictor" {
		f.route(few.Layers, taken)
	}
	whole := few
	whole.Layers, whole.Scale = search.Dense(f.larger).Layers, nil
	for i, alike := range f.like {
		var mean cost.Stage
		for _, k := range alike {
			mean = mean.Plus(few.Layers[k].Stage().Scale(1 / float64(len(alike))))
		}
		whole.Layers[i] = whole.Layers[i].With(mean)
	}
	for i, l := range dynamic.Leave(whole.Layers, f.gone) {
		whole.Layers[i] = whole.Layers[i].With(l.Stage())
		whole.Layers[i].Output = l.Output
	}
	return whole
}

// route sets what routed blocks cost that took another share of the tokens than they
// will: beside what the first block costs for those, routing costs what it did.
func (f Few) route(layers []cost.Layer, taken float64) {
	var block cost.Stage
	for _, l := range layers {
		if l.Name == "block.0" || strings.HasPrefix(l.Name, "block.0.") {
			block = block.Plus(l.Stage())
		}
	}
	for i, d := range model.FromConfig(f.Config).Chain() {
		if d.Form == model.Routed {
			s := layers[i].Stage().Plus(block.Scale(f.Config.Mod.Capacity - taken))
			least := block.Scale(f.Config.Mod.Capacity)
			layers[i] = layers[i].With(s.Max(least))
		}
	}
}
