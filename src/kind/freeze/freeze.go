package freeze

import (
	"fmt"

	"dynmo/src/dynamic"
)

// atStep freezes the first layers of the chain at one step. They keep their weights: they have no
// backward for weights, no update, and no share in the norm or in the exchange between replicas. No
// gradient goes back to them. The set of frozen parameters is part of the layers' state. The
// remaining passes cost the same as before, so measurements stay valid.
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
