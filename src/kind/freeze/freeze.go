package freeze

import (
	"fmt"

	"dynmo/src/dynamic"
)

// atStep ends the training of the first layers of the chain at one step. They
// keep their weights: they have no backward for weights, no update, and no share
// in the norm or in what replicas exchange; no gradient goes back to them. Which
// parameters are frozen is part of the layers' state. What is left to do costs what
// it did, so that measurements go on to hold.
type atStep struct {
	dynamic.Unmeasured
	Layers int // of the chain, from the first on
	Step   int
}

// Before freezes the stage's layers at the step.
func (f atStep) Before(step int, t dynamic.Target) (dynamic.Change, error) {
	if step != f.Step {
		return dynamic.Change{}, nil
	}
	if err := t.Settle(); err != nil {
		return dynamic.Change{}, fmt.Errorf("freeze: %w", err)
	}
	t.Stage.Freeze(func(layer int) bool { return layer < f.Layers })
	return dynamic.Change{Kind: "freeze", Structure: true, Detail: map[string]float64{"layers": float64(f.Layers)}}, nil
}
