package freeze

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/model"
)

// forcing has the frozen layers follow a file: 1 of a layer that is frozen, 0 of one that
// trains.
var forcing = dynamic.Forcing{
	Field: "frozen",
	Most:  func(config.Config) int { return 1 },
	Has:   func(model.Description) bool { return true },
	New:   func(_ config.Config, l dynamic.Loads) (dynamic.Kind, error) { return forced{loads: l}, nil },
}

// forced freezes and thaws layers at the steps of a file.
type forced struct {
	dynamic.Unmeasured
	loads dynamic.Loads
}

// Before freezes the layers of this stage that are frozen from the step on, if the file has the
// step. The others train.
func (f forced) Before(step int, t dynamic.Target) (dynamic.Change, error) {
	frozen, due := f.loads.At(step)
	if !due {
		return dynamic.Change{}, nil
	}
	if err := t.Settle(); err != nil {
		return dynamic.Change{}, fmt.Errorf("freeze: %w", err)
	}
	t.Stage.Freeze(func(layer int) bool { return frozen[layer] > 0 })
	count, first := 0, 0
	for layer, x := range frozen {
		count += int(x)
		if x > 0 && first == layer {
			first++
		}
	}
	kind := "freeze"
	switch {
	case count == 0:
		kind = "thaw"
	case first < count:
		kind = forcedSet
	}
	return dynamic.Change{Kind: kind, Structure: true, Detail: map[string]float64{"layers": float64(count), "of_all": float64(len(frozen))}}, nil
}

// forcedSet is the kind of a change to frozen layers that are not the first of the chain.
const forcedSet = "freeze.set"

// tellSet says how many layers are frozen.
func tellSet(of map[string]float64) string {
	return fmt.Sprintf("frozen layers: %.0f of %.0f", of["layers"], of["of_all"])
}
