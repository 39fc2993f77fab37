package study

import (
	"fmt"
	"slices"

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
	like   [][]int // by layer of the larger model: those of the few that compute alike
}

// NewFew returns the few blocks of a model: the first two, or the number in which the kinds
// of dynamism have blocks of every form.
func NewFew(c config.Config) (Few, error) {
	f := Few{Config: c, larger: c}
	blocks := dynamic.FewBlocks(&f.Config)
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
		f.like = append(f.like, like)
	}
	return f, nil
}

// Whole returns the costs of the larger model, each layer's those of its like in the few,
// their mean. taken is the share of the tokens that the second block of the few took when
// it was measured, 1 if it takes all. What kinds do with tokens in the end frees no memory.
func (f Few) Whole(few cost.Table, taken float64) cost.Table {
	few.Layers = slices.Clone(few.Layers)
	kinds := dynamic.Active(f.larger)
	for _, kind := range kinds {
		if kind.Few.Correct != nil {
			kind.Few.Correct(f.Config, few.Layers, taken)
		}
	}
	whole := few
	whole.Layers, whole.Scale = search.Dense(f.larger).Layers, nil
	for i, alike := range f.like {
		var mean cost.Stage
		for _, k := range alike {
			mean = mean.Plus(few.Layers[k].Stage().Scale(1 / float64(len(alike))))
		}
		whole.Layers[i] = whole.Layers[i].WithSeconds(mean)
	}
	for _, kind := range kinds {
		if kind.Few.Finish == nil {
			continue
		}
		for i, l := range kind.Few.Finish(f.larger, whole.Layers) {
			whole.Layers[i] = whole.Layers[i].WithSeconds(l.Stage())
			whole.Layers[i].Output = l.Output
		}
	}
	return whole
}
