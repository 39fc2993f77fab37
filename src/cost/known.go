package cost

import "fmt"

// Known is the part of a step's measurement that the estimator used. With it a simulated run
// knows as much about costs after every step as the real run did.
type Known struct {
	Layers [][3]float64 `json:"layers"`           // by layer and pass: seconds divided by those of the phase; 0: the pass did not run
	Within float64      `json:"within,omitempty"` // the median of the layers' deviations; 0: not known
	Forget bool         `json:"forget,omitempty"` // costs of steps before this one are no longer valid
}

// Check returns an error unless k has this number of layers and all seconds are in the range of
// measurements.
func (k Known) Check(layers int) error {
	if len(k.Layers) != layers {
		return fmt.Errorf("layers: %d, want %d", len(k.Layers), layers)
	}
	if !(k.Within >= 0 && k.Within <= MostSeconds) {
		return fmt.Errorf("within: %v, want 0 to %g", k.Within, MostSeconds)
	}
	for l, row := range k.Layers {
		for _, x := range row {
			if !(x >= 0 && x <= MostSeconds) {
				return fmt.Errorf("layers[%d]: %v, want numbers from 0 to %g", l, x, MostSeconds)
			}
		}
	}
	return nil
}
