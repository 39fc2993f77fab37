package cost

import (
	"fmt"
	"math"
)

// Bounds of the numbers in files. No measurement gives larger ones: the file is damaged or its
// units are wrong. Using it would take too much time or memory, or give nonsense.
const (
	MostSeconds    = 1e6     // of a layer, a step or a dispatch: eleven days
	MostLatency    = 10      // seconds of a message: light goes round the Earth in a seventh of one
	LeastBandwidth = 1e3     // bytes per second: a telephone line's
	MostBandwidth  = 1e15    // bytes per second: a hundred times the memory of a rack of GPUs
	MostFactor     = 1e6     // times that one rank or microbatch takes longer than another
	mostBytes      = 1 << 50 // of all layers: thousands of GPUs have as much; sums stay far from the largest integer
	mostSteps      = 1_000_000_000
)

// within returns an error unless x is in [0, most].
func within(field string, x, most float64) error {
	switch {
	case !(x >= 0) || math.IsInf(x, 1):
		return fmt.Errorf("%s: %v, want a finite number >= 0", field, x)
	case x > most:
		return fmt.Errorf("%s: %v, want at most %v", field, x, most)
	}
	return nil
}

// checkFigures returns an error if a figure of a layer is outside its bounds.
func (l Layer) checkFigures(field string) error {
	b := l.Bytes
	least := min(b.Parameters, b.Gradients, b.Own, b.Summed(), b.Optimizer, b.Workspace, b.Activations, b.Held, b.Recomputed)
	sum := float64(b.Parameters) + float64(b.Gradients) + float64(b.Optimizer) + float64(b.Workspace) +
		float64(b.Activations) + float64(b.Held) + float64(b.Recomputed) // float64: integers could overflow
	for _, f := range []struct {
		name        string
		value, most float64
	}{
		{"forward", l.Forward, MostSeconds}, {"backward_input", l.BackwardInput, MostSeconds}, {"backward_weight", l.BackwardWeight, MostSeconds},
		{"output", float64(l.Output), mostBytes}, {"rows", float64(l.Rows), mostBytes}, {"non_zeros", float64(l.NonZeros), mostBytes},
		{"bytes", float64(least), mostBytes}, {"bytes", sum, mostBytes},
	} {
		if err := within(field+"."+f.name, f.value, f.most); err != nil {
			return err
		}
	}
	return nil
}
