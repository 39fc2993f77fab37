package policy

import (
	"dynmo/src/balance"
	"dynmo/src/layout"
)

// Reason says why a balancer decided as it did. The zero Reason means that there was nothing
// to decide after this step.
type Reason struct {
	Decided    bool                 `json:"decided"`
	Kept       Kept                 `json:"kept,omitempty"`      // why the layout stays; "" if it changes
	Gain       Gain                 `json:"gain"`                // of the best other layout
	Predicted  float64              `json:"predicted"`           // seconds of the next step
	Bottleneck float64              `json:"bottleneck"`          // of the next cuts, in what the balancer balances
	Optimum    float64              `json:"optimum"`             // the smallest possible bottleneck
	Diffusion  *balance.Descent     `json:"diffusion,omitempty"` // nil for other balancers
	Undone     bool                 `json:"undone,omitempty"`    // the last move made steps slower, and layers go back
	Placed     *Placed              `json:"placed,omitempty"`    // pieces of layers that move; nil: none do
	Pack       *Packing             `json:"pack,omitempty"`      // result of the look for fewer stages; nil: there was no look
	Reference  Reference            `json:"reference,omitzero"`  // the dense model; zero: not known
	Full       *balance.MemoryError `json:"-"`                   // no cuts fit the memory, so layers stay; set once until the model changes
}

// Kept says why a balancer leaves a layout as it is.
type Kept string

const (
	KeptBest      Kept = "best"      // nothing else is predicted to be faster
	KeptUncertain Kept = "uncertain" // the gain could be noise
	KeptPrice     Kept = "price"     // moving would take longer than it saves
	KeptUndone    Kept = "undone"    // the last move made steps slower and was undone recently
	KeptRefused   Kept = "refused"   // a rank recently had no memory for a move

	// The others say why the model is not packed, as KeptUncertain may too.

	keptThroughput Kept = "throughput" // fewer stages would be too slow
	keptLoad       Kept = "load"       // the model has not become cheap enough
	keptMemory     Kept = "memory"     // their ranks would lack memory
	keptNodes      Kept = "nodes"      // no node would come free
)

// Detail returns the fields that events.jsonl records of a decision for a layout.
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
