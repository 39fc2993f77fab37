package balance

import (
	"fmt"
	"strconv"
)

const (
	minGain = 0.01 // predicted gain below which the trigger never asks for a decision
	recent  = 0.5  // weight of the newest cost in the moving average of balancing costs
)

// Trigger decides in which steps to balance: at fixed intervals, or when balancing pays. It has no
// state that differs between ranks: with the same arguments it gives the same answer on every rank.
type Trigger struct {
	Count
	every int // steps between two balancings; 0: balance when it pays
}

// Count is the state of a trigger, as saved in checkpoints.
type Count struct {
	Steps    int     `json:"steps"`    // steps since the last balancing
	Excess   float64 `json:"excess"`   // seconds lost since the last balancing, compared with the best partition
	Cost     float64 `json:"cost"`     // moving average of the seconds that balancing took
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

// Auto reports whether Step uses its arguments.
func (t *Trigger) Auto() bool { return t.every == 0 }

// Step is called once after every step and reports whether to balance now. present is the predicted
// seconds of a step at the present cuts. best is the same at the best cuts that memory allows. Both
// use the current costs and the same method of prediction, which the caller chooses.
//
// "auto" adds up present - best. Step returns true once the sum has reached the cost of balancing
// and the gain, 1 - best/present, exceeds 1 %. Until the first balancing has been measured its cost
// counts as 0.
func (t *Trigger) Step(present, best float64) bool {
	t.Steps++
	if t.every > 0 {
		return t.Steps >= t.every
	}
	t.Excess = max(0, t.Excess+present-best)
	return t.Excess >= t.Cost && best < (1-minGain)*present
}

// Balanced records the seconds that balancing took (profiling, deciding and moving; the largest
// over all ranks). It sets the count of steps and the sum back to 0.
func (t *Trigger) Balanced(seconds float64) {
	if t.Measured {
		seconds = t.Cost + recent*(seconds-t.Cost)
	}
	t.Cost, t.Measured = seconds, true
	t.Steps, t.Excess = 0, 0
}
