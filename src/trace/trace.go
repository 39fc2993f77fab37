// Package trace describes the work of one step on every rank. In come spans of work with their
// times. Out come makespan, bubble ratio, imbalance and idle time.
package trace

import (
	"math"
	"slices"
)

// Op is an operation of a stage: an instruction of its schedule, or another span of its time.
type Op uint8

const (
	F            Op = iota // forward for one microbatch
	B                      // backward: I, then W
	I                      // backward for inputs
	W                      // backward for weights
	RecvForward            // receive activations from the stage before
	SendForward            // send activations to the stage behind
	RecvBackward           // receive gradients from the stage behind
	SendBackward           // send gradients to the stage before
	Reduce                 // gradient sum over replicas
	Optimizer              // norm, clip, update
)

// String returns the op's name in schedules, files and figures.
func (o Op) String() string {
	return [...]string{"F", "B", "I", "W", "RF", "SF", "RB", "SB", "reduce", "optimizer"}[o]
}

// Pipeline reports whether the op computes for a microbatch.
func (o Op) Pipeline() bool { return o <= W }

// Span is a piece of work on one rank. Seconds count from the start of the
// run, on the clock that the Step names.
type Span struct {
	Op         Op
	Layer      int // -1 if the work is not one layer's
	Chunk      int // of its stage; 0 outside the schedule
	Microbatch int // global microbatch; -1 outside the schedule
	Tokens     int // number of tokens in a layer's forward
	Start, End float64
	Waited     float64 // seconds of waiting for other replicas within the span; of a layer: seconds of a planned second forward
	Expected   float64 // of a layer's forward with random steps: the share of steps in which it works; 0 means 1
}

// Seconds returns how long the work took, without waiting.
func (s Span) Seconds() float64 { return s.End - s.Start - s.Waited }

// Step has the spans of one training step on one replica, by stage.
type Step struct {
	Step   int
	Clock  string // wall, virtual or sim
	Stages [][]Span
}

// Summary has the sums of a step's spans.
type Summary struct {
	Busy       []float64 // by stage: seconds in F, I and W
	Start, End float64   // first start and last end of F, I and W over all stages
	Finish     float64   // last end of any span
}

// Summary sums up the spans.
func (s Step) Summary() Summary {
	parts := make([]Summary, len(s.Stages))
	for i, spans := range s.Stages {
		parts[i] = Summarise(spans)
	}
	return Join(parts)
}

// Summarise sums up the spans of one stage.
func Summarise(spans []Span) Summary {
	s := Summary{Busy: []float64{0}, Start: math.Inf(1), End: math.Inf(-1)}
	for _, sp := range spans {
		s.Finish = max(s.Finish, sp.End)
		if sp.Op.Pipeline() {
			s.Busy[0] += sp.Seconds()
			s.Start, s.End = min(s.Start, sp.Start), max(s.End, sp.End)
		}
	}
	return s
}

// Join combines the summaries of stages, in order.
func Join(parts []Summary) Summary {
	s := Summary{Start: math.Inf(1), End: math.Inf(-1)}
	for _, p := range parts {
		s.Busy = append(s.Busy, p.Busy...)
		s.Start, s.End = min(s.Start, p.Start), max(s.End, p.End)
		s.Finish = max(s.Finish, p.Finish)
	}
	return s
}

// Makespan returns the seconds from the first start to the last end of F, I
// and W over all stages, 0 if there were none.
func (s Summary) Makespan() float64 { return max(0, s.End-s.Start) }

// Idle returns the seconds of all stages together, between the first start and
// the last end, in which no F, I or W ran.
func (s Summary) Idle() float64 {
	idle := s.Makespan() * float64(len(s.Busy))
	for _, b := range s.Busy {
		idle -= b
	}
	return max(0, idle) // rounding may make it negative
}

// BubbleRatio returns idle / (stages · makespan), in [0, 1]: the share of all
// stages' time in which no F, I or W ran. (Megatron-LM divides by the ideal
// time instead.)
func (s Summary) BubbleRatio() float64 {
	if s.Makespan() == 0 {
		return 0
	}
	return s.Idle() / (float64(len(s.Busy)) * s.Makespan())
}

// Idle has the seconds of a step by cause, each a mean over the stages. All except Balancing sum to
// the makespan.
type Idle struct {
	Busy          float64 `json:"busy"`
	Inherent      float64 `json:"inherent"`      // idle time of the same schedule with the same work, divided equally over the stages
	Imbalance     float64 `json:"imbalance"`     // added by unequal loads
	Memory        float64 `json:"memory"`        // added by the cap on microbatches in flight
	Communication float64 `json:"communication"` // added by messages
	Balancing     float64 `json:"balancing"`     // measuring, deciding and moving
}

// Plus returns i and a share of other.
func (i Idle) Plus(other Idle, share float64) Idle {
	i.Busy += share * other.Busy
	i.Inherent += share * other.Inherent
	i.Imbalance += share * other.Imbalance
	i.Memory += share * other.Memory
	i.Communication += share * other.Communication
	i.Balancing += share * other.Balancing
	return i
}

// Makespan returns the sum of all parts except Balancing.
func (i Idle) Makespan() float64 {
	return i.Busy + i.Inherent + i.Imbalance + i.Memory + i.Communication
}

// Median returns the middle of some numbers. It is the mean of the middle two if their count is
// even, and 0 for no numbers.
func Median(list []float64) float64 {
	n := len(list)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
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

// Memory is the memory of a rank after a step, in bytes.
type Memory struct {
	Resident  int64 // in RAM, for any purpose
	Allocated int64 // on the device
	Kept      int64 // free on the device, kept for layers that arrive later
}
