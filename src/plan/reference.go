package plan

import "fmt"

// Reference describes a step of the dense model: of the model before any kind of dynamism changed it.
// Packing compares with it. The step is simulated on measured costs, at the best cuts over the number
// of stages with which the run began.
type Reference struct {
	Seconds  float64 `json:"reference"`                    // of the step, with the sums of gradients over replicas; 0: not known
	Makespan float64 `json:"reference_makespan,omitempty"` // seconds of the step from the first forward to the last backward
	Load     float64 `json:"load,omitempty"`               // sum over all layers: seconds for one microbatch, or parameters (balance.by)
	Error    float64 `json:"load_error,omitempty"`         // relative standard error of Load
	Seen     int     `json:"seen,omitempty"`               // steps with known costs so far, at most 64; at 64 the reference is final
}

// WellKnown is the number of steps after which costs get no more certain.
const WellKnown = 64

// mostSeconds bounds the numbers of a checkpoint. A file with a larger one is damaged.
const mostSeconds = 1e12

// Check returns an error unless the numbers are plausible.
func (d Reference) Check() error {
	for field, x := range map[string]float64{"reference": d.Seconds, "reference_makespan": d.Makespan, "load": d.Load, "load_error": d.Error} {
		if !(x >= 0 && x <= mostSeconds) {
			return fmt.Errorf("%s: %v, want 0 to %g", field, x, float64(mostSeconds))
		}
	}
	if d.Seen < 0 || d.Seen > WellKnown {
		return fmt.Errorf("seen: %d, want 0 to %d", d.Seen, WellKnown)
	}
	return nil
}
