// Package sim executes a schedule on costs and a network, without ranks. In come every stage's list
// of instructions, their seconds, and the cost of messages. Out go the times at which each stage
// worked. Time passes by the rules of the virtual clock. So a run on that clock with known costs
// takes the seconds of the simulator.
package sim

import (
	"math"

	"dynmo/src/cost"
	"dynmo/src/mesh"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// Step is a step to be simulated, of one replica.
type Step struct {
	Schedule      schedule.Schedule
	Costs         []cost.Stage   // by virtual stage, for one microbatch
	PerMicrobatch [][]cost.Stage // by virtual stage and microbatch; replaces Costs where not nil

	// Bytes is, by virtual stage, the bytes of the output of a microbatch, and of the
	// gradient that comes back. The last stage's do not count. Nil: messages are free.
	Bytes    []int64
	Network  Network
	Dispatch float64       // overhead: seconds that a stage needs at least from one instruction to the next
	Mesh     mesh.Mesh     // rank of (stage, replica); zero: rank = stage
	Ranks    []int         // of the launched world, by rank of Mesh (see layout.Layout); nil: the same
	Sums     schedule.Sums // how gradients are added up over replicas
	Replica  int           // which replica this is
	Number   int           // steps before this one: a key of the delays

	Spans bool // whether Result holds spans
}

// Result is how a step went. Seconds count from its start.
type Result struct {
	trace.Summary
	Stage []Extent       // by stage
	Spans [][]trace.Span // by stage, one for each instruction in order; microbatches are the replica's own

	replica int    // that was simulated
	weights []work // by virtual stage: the last instruction with its weights
}

// Extent is when a stage began its first instruction and ended its last.
type Extent struct{ Start, End float64 }

// Seconds returns the time from the start to the end.
func (e Extent) Seconds() float64 { return e.End - e.Start }

// work is an instruction that was carried out.
type work struct {
	op schedule.Op
	Extent
}

// Run simulates a step. Every stage carries out its list in order; F needs what
// F of the virtual stage before has sent, B and I what B or I of the one behind
// has. A result is sent when its instruction ends, which costs the sender
// nothing; it arrives as comm.Network.Travel says, over the link of its sender
// and receiver, and the receiver's clock reaches the arrival when an
// instruction needs it:
//
//	start = max(end of the stage's instruction before + dispatch, arrival)
//
// Between chunks of one stage nothing is sent. The schedule is one that Check
// accepts; Run panics on a deadlock. What is frozen has no instructions beside F, nor
// messages, as in the pipeline (see schedule.SkipFrozen): the first virtual stages, as long as
// their forwards take time and their backwards none. If weights have backwards and inputs have
// none anywhere, no gradients are sent (exit.stage2). B and I then need what the last virtual
// stage says after its F of the microbatch, in a message of no bytes.
func Run(s Step) Result {
	e := newEngine(s)
	return e.run(s.Replica)
}

// Makespan returns the seconds from the first start to the last end of a step
// whose messages are free. costs is by virtual stage.
func Makespan(s schedule.Schedule, costs []cost.Stage) float64 {
	return Run(Step{Schedule: s, Costs: costs}).Makespan()
}

// result sums up what the engine did.
func (e *engine) result() Result {
	r := Result{
		Summary: trace.Summary{Busy: e.busy, Start: math.Inf(1), End: math.Inf(-1)},
		Stage:   e.extents, Spans: e.spans, weights: e.weights,
	}
	for stage, x := range e.extents {
		if len(e.s.Schedule.Lists[stage]) > 0 {
			r.Start, r.End = min(r.Start, x.Start), max(r.End, x.End)
		}
	}
	r.Finish = max(0, r.End)
	return r
}
