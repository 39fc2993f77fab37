package dynamic

import "dynmo/src/config"

func init() {
	register("freeze", func(c config.Config) Kind {
		if c.Freeze.When == "plasticity" {
			return NewPlasticity(c.Freeze)
		}
		return Freeze{Layers: c.Freeze.Layers, Step: c.Freeze.Step}
	})
}

// Freeze ends the training of the first layers of the chain at one step. They
// keep their weights: they have no backward for weights, no update, and no share
// in the norm or in what replicas exchange; no gradient goes back to them. Which
// parameters are frozen is part of the layers' state. What is left to do costs what
// it did, so that measurements go on to hold.
type Freeze struct {
	unmeasured
	Layers int // of the chain, from the first on
	Step   int
}

// Before freezes the stage's layers at the step.
func (f Freeze) Before(step int, t Target) (Change, error) {
	if step != f.Step {
		return Change{}, nil
	}
	t.Stage.Freeze(func(layer int) bool { return layer < f.Layers })
	return Change{Kind: "freeze", Structure: true, Detail: map[string]float64{"layers": float64(f.Layers)}}, nil
}
