package launch

import (
	"testing"

	"dynmo/src/config"
	"dynmo/src/kind/exit"
	"dynmo/src/kind/moe"
)

func sBase(c *config.Config)    { c.Assign("moe.balance", "s-base") }
func squashed(c *config.Config) { c.Assign("moe.router", "mlp", "moe.scale", 3) }
func dropping(c *config.Config) { c.Assign("moe.capacity", 0.7); c.Assign("mod.route", "topk") }

// TestExpertsKeepLaw1: a mixture of experts, alone and with every kind of change that
// composes with it, has the losses, gradient norms and final hash of one stage that never
// moved a layer.
func TestExpertsKeepLaw1(t *testing.T) {
	keepLaw1(t, 7, func(c config.Config) config.Config {
		c = llama(c)
		c.Assign("moe.experts", 5, "moe.top", 2, "moe.intermediate", 24)
		return c
	}, []mix{
		{"moe", nil}, {"moe", sBase}, {"moe+mod", dropping}, {"prune+moe", squashed}, {"freeze+moe", byPlasticity},
		{"moe+exit", saturation}, {"moe+exit", propagated}, {"moe+attention", ungrouped}, {"prune+freeze+moe+exit+mod", nil},
	})
}

// TestRandomShapesOfExperts is law 1 of LLaMAs on odd shapes, with experts from a single
// one on, of which a token goes to any number, and with so little capacity that most
// assignments are dropped: 4 draws, with DYNMO_LONG=1 150.
func TestRandomShapesOfExperts(t *testing.T) {
	mixes := []mix{
		{"moe", nil}, {"moe", sBase}, {"moe", nil}, {"moe", sBase}, {"none", nil}, {"prune", nil}, {"prune+moe", sBase}, {"freeze+moe", byPlasticity},
		{"moe+mod", topk}, {"moe+mod", sBase}, {"moe+exit", saturation}, {"moe+exit", propagated}, {"moe+attention", ungrouped},
		{"moe+exit+mod", softmax}, {"prune+freeze+moe+exit+mod", sBase}, {"prune+freeze+moe+attention", sBase},
	}
	randomShapes(t, 4, 79, mixes, func(c *config.Config, pick func(lo, hi int) int) {
		drawExperts(c, pick)
		c.Assign("moe.experts", pick(1, 9))
		c.Assign("moe.top", pick(1, config.Of[moe.Settings](*c).Experts))
		c.Assign("parallel.experts", []string{"local", "spread"}[pick(0, 1)])
	})
}

// drawExperts draws a LLaMA, and what its experts have but for how many they are.
func drawExperts(c *config.Config, pick func(lo, hi int) int) {
	c.Model.Family, c.Model.KeyValueHeads = "llama", pick(1, 3)
	c.Model.Heads = c.Model.KeyValueHeads * pick(1, 3)
	if c.Dynamic.Has("attention") || config.Of[exit.Settings](*c).Propagate {
		c.Model.KeyValueHeads = 0
	}
	c.Model.Hidden, c.Model.Intermediate = c.Model.Heads*2*pick(1, 4), pick(1, 40)
	c.Assign("moe.intermediate", pick(0, 20))
	c.Model.RopeScaling, c.Model.RopeOriginal = []string{"none", "linear", "llama3"}[pick(0, 2)], 4
	c.Assign("moe.capacity", []float64{0, 0, 1e-12, 0.1, 0.7, 1}[pick(0, 5)], "moe.z", float64(pick(0, 1)))
	c.Assign("moe.router", []string{"linear", "mlp"}[pick(0, 1)], "moe.scale", []float64{1, 4}[pick(0, 1)])
}

// TestRandomShapesOfExpertsApart is law 1 on odd shapes of experts that are not all in one
// place: shared out to two to four replicas, or to layers of their own: 4 draws, with
// DYNMO_LONG=1 150.
func TestRandomShapesOfExpertsApart(t *testing.T) {
	randomShapes(t, 4, 80, apart, drawApart)
}

var apart = []mix{
	{"moe", nil}, {"moe", sBase}, {"freeze+moe", nil}, {"moe+mod", topk}, {"moe+mod", sBase}, {"moe+exit", saturation},
	{"moe+exit", propagated}, {"moe+exit", softmax}, {"moe+attention", ungrouped}, {"moe+exit+mod", softmax}, {"freeze+moe+exit+mod", sBase},
	{"moe+exit+mod", propagated},
}

// drawApart draws experts that are not all in one place.
func drawApart(c *config.Config, pick func(lo, hi int) int) {
	drawExperts(c, pick)
	places := pick(2, 4)
	c.Assign("moe.experts", places*pick(1, 3))
	c.Assign("moe.top", pick(1, config.Of[moe.Settings](*c).Experts))
	c.Mesh.Order = []string{"stage-major", "replica-major"}[pick(0, 1)]
	if pick(0, 2) == 0 {
		c.Model.Grain = "expert"
		c.Assign("moe.groups", places)
	} else {
		c.Parallel.Replicas = places
		c.Assign("parallel.experts", "spread")
	}
}

// TestSpreadExpertsWithoutTokens: where all tokens have left in front of blocks that route
// what is left, replicas still take part in the exchange of their experts.
func TestSpreadExpertsWithoutTokens(t *testing.T) {
	c := llama(mix{"moe+exit+mod", nil}.of(small(t)))
	c.Parallel.Replicas = 2
	c.Assign("moe.experts", 4, "moe.top", 2, "parallel.experts", "spread")
	c.Train.Steps = 2
	c.Assign("exit.share", 0, "exit.threshold", -1)
	still := goRun(t, c, nil)
	c.Parallel.Stages = 3
	same(t, goRun(t, c, scatter(1)), still)
}

// TestExpertsKeepLaw2: a mixture of experts goes on from a checkpoint, on other stages, as
// if it had never ended.
func TestExpertsKeepLaw2(t *testing.T) {
	c := llama(small(t))
	c.Train.Steps, c.Parallel.Stages, c.Model.Grain = 7, 3, "half"
	c.Dynamic.Kind = "moe"
	c.Assign("moe.experts", 4, "moe.top", 3)
	whole := goRun(t, c, nil)
	saved := part{dir: t.TempDir(), stop: 3}
	first, _ := trainPart(t, c, saved)
	c.Parallel.Stages, c.Schedule.Kind = 2, "zb-v"
	then, _ := trainPart(t, c, part{from: saved.dir})
	if at := joined(first, then).difference(whole); at != "" {
		t.Errorf("differs from an undisturbed run at %s", at)
	}
	c.Assign("moe.top", 2)
	refused(t, c, saved.dir, `moe.top: 3 in the checkpoint, 2 here`)
}
