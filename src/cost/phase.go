package cost

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Phase is consecutive steps in which layers cost the same.
type Phase struct {
	Step  int    `json:"step"`            // the first
	Steps int    `json:"steps"`           // how many; 0 in a table that belongs to no run
	Model string `json:"model,omitempty"` // settings that the costs hold for; "" if they are not known
	Table
	// Scale is by layer and microbatch: how many times its seconds that microbatch
	// takes, for dynamism that treats microbatches differently. Absent means 1.
	Scale [][]float64 `json:"scale,omitempty"`
	// Factors are the same of forward, backward-input and backward-weight apart, as a
	// run measured them. They stand for Scale where that is absent.
	Factors [][]Stage `json:"-"`
	// Change is what changed the model before the first step, "" if nothing did.
	Change string `json:"change,omitempty"`
}

// mostSteps and MostSeconds are bounds beyond which no run goes: a file that says
// more is damaged, and would cost time or memory.
const (
	mostSteps   = 1_000_000_000
	MostSeconds = 1e9
)

// Series is what a model costs over a run, ascending and without gaps.
type Series []Phase

// Check refuses what no simulation could be trusted with: other numbers of layers
// than wanted, seconds that are negative, missing or infinite. The error names the
// field.
func (s Phase) Check(layers int) error {
	if n := len(s.Layers); n == 0 || n != layers {
		return fmt.Errorf("layers: %d, want %d", n, max(layers, 1))
	}
	if s.Step < 0 || s.Steps < 0 || s.Step > mostSteps || s.Steps > mostSteps {
		return fmt.Errorf("steps: %d from %d, want neither below 0 or above %d", s.Steps, s.Step, mostSteps)
	}
	total := 0.0
	for l, layer := range s.Layers {
		b := layer.Bytes
		for _, f := range []struct {
			field string
			value float64
		}{
			{"forward", layer.Forward}, {"backward_input", layer.BackwardInput}, {"backward_weight", layer.BackwardWeight},
			{"output", float64(layer.Output)}, {"non_zeros", float64(layer.NonZeros)},
			{"bytes", float64(min(b.Parameters, b.Gradients, b.Optimizer, b.Workspace, b.Activations, b.Held))},
		} {
			if !(f.value >= 0) || math.IsInf(f.value, 1) {
				return fmt.Errorf("layers[%d].%s: %v, want a finite number >= 0", l, f.field, f.value)
			}
		}
		total += layer.Seconds()
	}
	if math.IsInf(total, 1) {
		return errors.New("layers: seconds sum to infinity")
	}
	if !(s.Dispatch >= 0 && s.Dispatch <= MostSeconds) {
		return fmt.Errorf("gap: %v, want seconds from 0 to %g", s.Dispatch, float64(MostSeconds))
	}
	if n := len(s.Scale); n != 0 && n != layers {
		return fmt.Errorf("scale: %d rows, want %d", n, layers)
	}
	for l, row := range s.Scale {
		for m, x := range row {
			if !(x >= 0) || math.IsInf(x, 1) {
				return fmt.Errorf("scale[%d][%d]: %v, want a finite number >= 0", l, m, x)
			}
		}
	}
	return nil
}

// UnmarshalJSON reads a layer. Seconds must be there: one that is left out is
// not one that costs nothing.
func (l *Layer) UnmarshalJSON(text []byte) error {
	type plain Layer      // without this method
	missing := math.NaN() // which no JSON says
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
