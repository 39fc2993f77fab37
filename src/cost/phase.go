package cost

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
)

// Phase is consecutive steps in which the costs of layers do not change.
type Phase struct {
	Step  int    `json:"step"`            // number of the first step
	Steps int    `json:"steps"`           // number of steps; 0 in a table outside a run
	Model string `json:"model,omitempty"` // settings under which the costs are valid; "" if not known
	Table
	// Factors is Scale with separate values for forward, backward-input and backward-weight, as
	// measured in a run. If present it replaces Scale.
	Factors [][]Stage `json:"-"`
	// Routed is the data behind Scale if the time of layers depends on which replicas have their
	// pieces; else nil.
	Routed *Routed `json:"-"`
	// Change is the kind of the model change before the first step, "" for none.
	Change string `json:"change,omitempty"`
}

// Series is the costs of a model over a run, ascending and without gaps.
type Series []Phase

// Check returns an error if a simulation of the phase would be meaningless: another number of
// layers than wanted, or seconds that are negative, missing or infinite. The error names the field.
func (s Phase) Check(layers int) error {
	if n := len(s.Layers); n == 0 || n != layers {
		return fmt.Errorf("layers: %d, want %d", n, max(layers, 1))
	}
	if s.Step < 0 || s.Steps < 0 || s.Step > mostSteps || s.Steps > mostSteps {
		return fmt.Errorf("steps: %d from %d, want neither below 0 or above %d", s.Steps, s.Step, mostSteps)
	}
	bytes := 0.0
	for l, layer := range s.Layers {
		if err := layer.checkFigures(fmt.Sprintf("layers[%d]", l)); err != nil {
			return err
		}
		bytes += float64(layer.Bytes.Static()) + float64(layer.Bytes.Activations) + float64(layer.Bytes.Held)
	}
	if err := cmp.Or(within("layers: bytes of all", bytes, mostBytes), within("dispatch_seconds", s.Dispatch, MostSeconds)); err != nil {
		return err
	}
	for stage, x := range s.Slow {
		if err := within(fmt.Sprintf("slow[%d]", stage), x, MostFactor); err != nil {
			return err
		}
	}
	for stage, x := range s.Fixed {
		if err := within(fmt.Sprintf("fixed[%d]", stage), x, MostSeconds); err != nil {
			return err
		}
	}
	if n := len(s.Scale); n != 0 && n != layers {
		return fmt.Errorf("scale: %d rows, want %d", n, layers)
	}
	if n := len(s.Deviation); n != 0 && n != layers {
		return fmt.Errorf("deviation: %d numbers, want %d", n, layers)
	}
	for l, x := range s.Deviation {
		if err := within(fmt.Sprintf("deviation[%d]", l), x, MostFactor); err != nil {
			return err
		}
	}
	for l, row := range s.Scale {
		for m, x := range row {
			if !(x >= 0 && x <= MostFactor) {
				return fmt.Errorf("scale[%d][%d]: %v, want a number from 0 to %v", l, m, x, float64(MostFactor))
			}
		}
	}
	return nil
}

// UnmarshalJSON reads a layer. Seconds are required: a missing number does not mean 0.
func (l *Layer) UnmarshalJSON(text []byte) error {
	type plain Layer      // without this method
	missing := math.NaN() // no JSON text gives NaN
	l.Forward, l.BackwardInput, l.BackwardWeight = missing, missing, missing
	if err := json.Unmarshal(text, (*plain)(l)); err != nil {
		return err
	}
	names := []string{"forward", "backward_input", "backward_weight"}
	for i, seconds := range []float64{l.Forward, l.BackwardInput, l.BackwardWeight} {
		if math.IsNaN(seconds) {
			return fmt.Errorf("layer %q: %s is missing", l.Name, names[i])
		}
	}
	return nil
}
