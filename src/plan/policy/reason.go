package policy

import (
	"dynmo/src/balance"
	"dynmo/src/layout"
)

// Reason is why a balancer answered as it did. The zero Reason is that there was
// nothing to decide after this step.
type Reason struct {
	Decided    bool                 `json:"decided"`
	Kept       Kept                 `json:"kept,omitempty"`      // why the layout stays; "" if it does not
	Gain       Gain                 `json:"gain"`                // of the layout that was weighed against the present one
	Predicted  float64              `json:"predicted"`           // makespan of the next step, in seconds
	Bottleneck float64              `json:"bottleneck"`          // of the next cuts, in what the balancer goes by
	Optimum    float64              `json:"optimum"`             // the smallest possible
	Diffusion  *balance.Descent     `json:"diffusion,omitempty"` // how it was found; nil for other balancers
	Undone     bool                 `json:"undone,omitempty"`    // the last move made steps slower; layers go back
	Pack       *Packing             `json:"pack,omitempty"`      // what a look at fewer stages came to; nil: there was none
	Reference  Reference            `json:"reference,omitzero"`  // of packing; zero: not known
	Full       *balance.MemoryError `json:"-"`                   // memory allows no cuts any more: layers stay. Told once until the model changes
}

// Kept is why a balancer leaves a layout as it is.
type Kept string

const (
	KeptBest      Kept = "best"      // nothing else is predicted to be faster
	KeptUncertain Kept = "uncertain" // the gain could be noise
	KeptPrice     Kept = "price"     // moving would take longer than it saves
	KeptUndone    Kept = "undone"    // the last move made steps slower, and was undone a while ago
	KeptRefused   Kept = "refused"   // a rank had no memory for the last move, a while ago

	// The others say why the model is not packed, as KeptUncertain may too.

	keptThroughput Kept = "throughput" // fewer stages would be too slow
	keptLoad       Kept = "load"       // the model has not become cheap enough
	keptMemory     Kept = "memory"     // their ranks would lack memory
	keptNodes      Kept = "nodes"      // no node would come free
)

// Detail returns what an event tells of a decision for a layout.
func (r Reason) Detail(next layout.Layout) map[string]any {
	if r.Full != nil {
		return map[string]any{"kept": r.Full.Error()}
	}
	d := map[string]any{
		"schedule": string(next.Schedule.Kind), "cuts": []int(next.Cuts),
		"bottleneck": r.Bottleneck, "optimum": r.Optimum, "gap": balance.Gap(r.Bottleneck, r.Optimum),
	}
	if r.Kept != "" {
		d["kept"] = string(r.Kept)
	}
	if r.Undone {
		d["undone"] = true
	}
	if r.Gain.Expected != 0 {
		d["gain"], d["gain_least"] = r.Gain.Expected, r.Gain.Least
	}
	if r.Diffusion != nil {
		d["rounds"], d["potential"] = r.Diffusion.Rounds, r.Diffusion.Potential
	}
	return d
}
