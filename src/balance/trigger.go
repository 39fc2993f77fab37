package balance

import (
	"fmt"
	"strconv"
)

const (
	minGain = 0.01 // predicted gain below which nothing needs to be decided
	recent  = 0.5  // weight of the newest cost of balancing in its moving average
)

// Trigger says when to balance: at fixed intervals of steps, or when balancing pays. It holds
// no private numbers of a rank: given the same numbers it answers the same on every rank.
type Trigger struct {
	Count
	every int // steps between balancings; 0 balances when it pays
}

// Count is what a trigger goes by, as checkpoints keep it.
type Count struct {
	Steps    int     `json:"steps"`    // since the last balancing
	Excess   float64 `json:"excess"`   // seconds lost since then against the best partition
	Cost     float64 `json:"cost"`     // moving average of what balancing took, seconds
	Measured bool    `json:"measured"` // whether Cost has been measured
}

// NewTrigger reads the setting balance.every: a number of steps, or "auto".
func NewTrigger(every string) (*Trigger, error) {
	if every == "auto" {
		return &Trigger{}, nil
	}
	n, err := strconv.Atoi(every)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("every: %q, want a number of steps of at least 1, or \"auto\"", every)
	}
	return &Trigger{every: n}, nil
}

// Auto reports whether Step looks at its arguments.
func (t *Trigger) Auto() bool { return t.every == 0 }

// Step is called once after every step and reports whether to balance now.
// present is the step's predicted seconds at the present cuts, best those at
// the best cuts that memory allows: both on the costs of the moment and by one
// way of predicting, whichever the caller has.
//
// "auto" adds up present - best. It answers yes once the sum has reached what
// balancing costs and the gain, 1 - best/present, is above 1 %; until balancing
// has been measured it counts as free.
func (t *Trigger) Step(present, best float64) bool {
	t.Steps++
	if t.every > 0 {
		return t.Steps >= t.every
	}
	t.Excess = max(0, t.Excess+present-best)
	return t.Excess >= t.Cost && best < (1-minGain)*present
}

// Balanced records the seconds that balancing took (profiling, deciding and moving; the
// largest of all ranks), and begins anew.
func (t *Trigger) Balanced(seconds float64) {
	if t.Measured {
		seconds = t.Cost + recent*(seconds-t.Cost)
	}
	t.Cost, t.Measured = seconds, true
	t.Steps, t.Excess = 0, 0
}
