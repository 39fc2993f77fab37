package launch

import (
	"math"
	"testing"

	"dynmo/src/config"
)

// TestLittleIsLeft: a run in which nothing is left to do for most layers, or of a sequence
// one token, trains, balances and validates, with the numbers of one stage.
func TestLittleIsLeft(t *testing.T) {
	skipUnlessC(t)
	everyTokenLeaves := func(c *config.Config) { c.Assign("exit.share", 0, "exit.threshold", -1, "exit.probe", 0) }
	for i, m := range []struct {
		name, kind string
		set        func(*config.Config)
	}{
		{"no token behind the first exit", "exit", everyTokenLeaves},
		{"no token behind the first exit, by softmax", "freeze+exit", func(c *config.Config) { softmax(c); everyTokenLeaves(c) }},
		{"no token behind the first block, which routes", "exit+mod", func(c *config.Config) { c.Assign("exit.after", "1"); everyTokenLeaves(c) }},
		{"next to none", "exit", func(c *config.Config) { c.Assign("exit.share", 0.999, "exit.start", 0, "exit.until", 1) }},
		{"no token in routed blocks", "prune+mod", func(c *config.Config) { c.Assign("mod.threshold", 1) }},
		{"one token of a sequence", "mod", func(c *config.Config) { topk(c); c.Assign("mod.capacity", 1e-9) }},
		{"one token of a sequence, from exits", "exit+mod", func(c *config.Config) { topk(c); c.Assign("mod.capacity", 1e-9, "exit.share", 0.9, "exit.until", 3) }},
		{"sequences of one token", "exit+mod", func(c *config.Config) { c.Model.Sequence = 1 }},
		{"sequences of one token, in a bucket", "prune+attention", func(c *config.Config) { c.Model.Sequence = 1; c.Assign("attention.buckets", 1) }},
		{"a bucket for each token", "attention", func(c *config.Config) { c.Model.Sequence = 16; c.Assign("attention.buckets", 16) }},
		{"all layers frozen", "prune+freeze+exit+mod", func(c *config.Config) { c.Assign("freeze.layers", c.Layers()) }},
		{"all layers frozen, in buckets", "freeze+attention", func(c *config.Config) { c.Assign("freeze.layers", c.Layers(), "freeze.step", 0) }},
		{"all but the last block and the head", "freeze", func(c *config.Config) { byPlasticity(c); c.Assign("freeze.tolerance", 0.99, "freeze.thaw", 0) }},
	} {
		t.Run(m.name, func(t *testing.T) {
			c := mix{m.kind, m.set}.of(small(t))
			c.Train.Steps, c.Data.Validation, c.Train.ValidateEvery, c.Train.ValidateSequences = 5, "0.2", 3, 8
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			still := goRun(t, c, nil)
			c.Parallel.Stages, c.Schedule.Kind, c.Balance.Every = 4, []string{"1f1b", "zb-v", "list"}[i%3], "1"
			for name, moved := range map[string]*run{"balanced": goRun(t, c, nil), "scattered": goRun(t, c, scatter(uint64(i)))} {
				same(t, moved, still)
				for step, m := range moved.metrics {
					if want := still.metrics[step].ValidationLoss; m.ValidationLoss != want {
						t.Errorf("%s, step %d: validation loss %v, want %v", name, step, m.ValidationLoss, want)
					}
					for what, x := range map[string]float64{"step": float64(m.StepSeconds), "bubbles": float64(m.BubbleRatio), "imbalance": float64(m.Imbalance),
						"bottleneck": float64(m.Bottleneck), "ceiling": float64(m.Headroom), "predicted": float64(m.Predicted)} {
						if !(x >= 0) || math.IsInf(x, 1) {
							t.Errorf("%s, step %d: %s is %v", name, step, what, x)
						}
					}
				}
			}
		})
	}
}
