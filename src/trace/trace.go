// Package trace says what one step did and when, on every rank, and what
// follows from it: makespan, bubble ratio, imbalance, idle time.
package trace

import "slices"

// Kind is what a span of time was spent on.
type Kind uint8

const (
	F         Kind = iota // forward of one layer for one microbatch
	I                     // backward for inputs
	W                     // backward for weights
	Reduce                // gradient sum over replicas
	Optimizer             // norm, clip, update
	Dynamic               // a change of the model: pruning, freezing, …
	Balance               // gathering costs and deciding
	Migrate               // moving layers
	kinds
)

// String returns the kind's name in files and figures.
func (k Kind) String() string {
	return [...]string{"F", "I", "W", "reduce", "optimizer", "dynamic", "balance", "migrate"}[k]
}

// Pipeline reports whether the span belongs to the schedule of microbatches.
func (k Kind) Pipeline() bool { return k <= W }

// Span is a stretch of work on one rank. Seconds count from the start of the
// run, on the clock that the Step names.
type Span struct {
	Kind       Kind
	Layer      int // -1 if the work is not one layer's
	Microbatch int // global microbatch; -1 outside the schedule
	Start, End float64
}

// Step is what one training step did: the spans of every stage, by stage, of
// one replica.
type Step struct {
	Step   int
	Clock  string // wall, virtual or sim
	Stages [][]Span
}

// Busy returns the seconds each stage spent in F, I and W.
func (s Step) Busy() []float64 {
	busy := make([]float64, len(s.Stages))
	for i, spans := range s.Stages {
		for _, sp := range spans {
			if sp.Kind.Pipeline() {
				busy[i] += sp.End - sp.Start
			}
		}
	}
	return busy
}

// Makespan returns the seconds from the first start to the last end of F, I
// and W over all stages.
func (s Step) Makespan() float64 {
	first, last, any := 0.0, 0.0, false
	for _, spans := range s.Stages {
		for _, sp := range spans {
			if !sp.Kind.Pipeline() {
				continue
			}
			if !any {
				first, last, any = sp.Start, sp.End, true
			}
			first, last = min(first, sp.Start), max(last, sp.End)
		}
	}
	return last - first
}

// BubbleRatio returns idle / (stages · makespan), in [0, 1]: the share of all
// stages' time in which no F, I or W ran. (Megatron-LM divides by the ideal
// time instead.)
func (s Step) BubbleRatio() float64 {
	makespan := s.Makespan()
	if makespan == 0 {
		return 0
	}
	return s.Idle() / (float64(len(s.Stages)) * makespan)
}

// Idle returns the seconds of all stages together in which no F, I or W ran
// between the first start and the last end.
func (s Step) Idle() float64 {
	idle := s.Makespan() * float64(len(s.Stages))
	for _, b := range s.Busy() {
		idle -= b
	}
	return idle
}

// Imbalance returns ΔL = (max - min) / mean of loads (paper, equation 2), 0 if
// there are none or all are zero.
func Imbalance(loads []float64) float64 {
	if len(loads) == 0 {
		return 0
	}
	sum := 0.0
	for _, l := range loads {
		sum += l
	}
	if sum == 0 {
		return 0
	}
	return (slices.Max(loads) - slices.Min(loads)) / (sum / float64(len(loads)))
}
