package plan

import (
	"dynmo/src/balance"
	"dynmo/src/layout"
)

// Reason says why a balancer decided as it did. The zero Reason means that there was nothing to decide
// after this step. Bottleneck and Optimum are loads of a stage, or of a chunk where stages hold several.
// A load is seconds for one microbatch if balance.by is "time", parameters if it is "param".
type Reason struct {
	Decided    bool                 `json:"decided"`
	Kept       Kept                 `json:"kept,omitempty"`      // why the layout stays; "" if it changes
	Gain       Gain                 `json:"gain"`                // of the best layout that was compared with the present one
	Predicted  float64              `json:"predicted"`           // predicted seconds of the next step
	Bottleneck float64              `json:"bottleneck"`          // load of the most loaded stage in the next layout
	Optimum    float64              `json:"optimum"`             // the smallest Bottleneck of any cuts
	Diffusion  *balance.Descent     `json:"diffusion,omitempty"` // nil for other balancers
	Undone     bool                 `json:"undone,omitempty"`    // the last move made steps slower, and layers go back
	Placed     *Placed              `json:"placed,omitempty"`    // pieces of layers that move between replicas; nil: none
	Pack       *Packing             `json:"pack,omitempty"`      // result of the search for fewer stages; nil: no search after this step
	Reference  Reference            `json:"reference,omitzero"`  // the dense model's step; zero: not measured yet
	Full       *balance.MemoryError `json:"-"`                   // no cuts fit the memory, so layers stay; set in the first such Reason only, until the model changes
}

// Kept says why a balancer leaves a layout as it is. Packing.Kept is KeptUncertain or one of the four
// values after it.
type Kept string

const (
	KeptBest      Kept = "best"      // nothing else is predicted to be faster
	KeptUncertain Kept = "uncertain" // the gain could be noise
	KeptPrice     Kept = "price"     // moving would take longer than it saves
	KeptUndone    Kept = "undone"    // within the last 100 steps a move made steps slower and was undone
	KeptRefused   Kept = "refused"   // within the last 100 steps a rank had no memory for a move

	// Why a model is not packed.
	KeptThroughput Kept = "throughput" // fewer stages would be too slow
	KeptLoad       Kept = "load"       // the model has not become cheap enough
	KeptMemory     Kept = "memory"     // their ranks would lack memory
	KeptNodes      Kept = "nodes"      // no node would come free
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

// Gain is the predicted share of a step's seconds, at most 1, that another layout saves. It is negative
// for a slower layout.
type Gain struct {
	Expected float64 `json:"expected"` // with the estimated costs of layers
	Least    float64 `json:"least"`    // three standard deviations below the mean, over draws from the errors of these costs
}

// WorthMoving is the least Gain.Expected of a move, a share of a step. Less is not worth the fresh memory
// that a move makes ranks use.
const WorthMoving = 0.01

// Placed describes the pieces of layers that a decision moves between replicas. The load of a replica
// is its work divided by the mean over the replicas: 1 is even.
type Placed struct {
	Layers int     `json:"layers"`           // number of layers whose pieces move
	Now    float64 `json:"now"`              // load of the most loaded replica, mean over these layers
	Then   float64 `json:"then"`             // expected value of Now after the move
	Bound  float64 `json:"bound"`            // lower bound of Then for any placement of pieces
	Gain   float64 `json:"gain"`             // share of a step's seconds that the move is expected to save
	Copied int64   `json:"copied,omitempty"` // bytes per step that copies cost the busiest rank (see the function Copied)
	Moved  int64   `json:"moved,omitempty"`  // bytes of pieces that change owner
}
