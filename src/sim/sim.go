// Package sim simulates a schedule on given costs and a network, without ranks. In come the
// instructions of every stage, their seconds, and the cost of messages. Out come the times at which
// each stage worked. Time passes by the rules of the virtual clock. So a run on that clock with
// known costs takes the simulated seconds.
package sim

import (
	"math"

	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// Step describes a step to simulate, of one replica.
type Step struct {
	Schedule      schedule.Schedule
	Costs         []cost.Stage   // by virtual stage, for one microbatch
	PerMicrobatch [][]cost.Stage // by virtual stage and microbatch; replaces Costs where not nil

	// Bytes has, by virtual stage, the bytes of a microbatch's output; its gradient has as many.
	// The entry of the last virtual stage is ignored. Nil: messages are free.
	Bytes    []int64
	Network  Network
	Dispatch float64     // least seconds that a stage needs from one instruction to the next
	Mesh     layout.Mesh // rank of (stage, replica); zero: rank = stage
	Ranks    []int       // by rank of Mesh: rank of the launched world (see layout.Layout); nil: the same
	Rounds   *Rounds     // how gradients are added up over replicas, on this network and mesh; nil: there is one replica
	Replica  int         // which replica this is
	Number   int         // steps before this one; random delays depend on it

	Spans bool // whether Result holds spans
}

// Result is a simulated step. Seconds count from its start.
type Result struct {
	trace.Summary
	Stage []Extent       // by stage
	Spans [][]trace.Span // by stage, one for each instruction in order; microbatches are the replica's own

	replica int    // simulated replica
	weights []work // by virtual stage: the last W or B
}

// Extent is the time from the start of a stage's first instruction to the end of its last.
type Extent struct{ Start, End float64 }

// Seconds returns the time from the start to the end.
func (e Extent) Seconds() float64 { return e.End - e.Start }

// work is an instruction that was carried out.
type work struct {
	op schedule.Op
	Extent
}

// Run simulates a step. Every stage carries out its list in order. F needs the output of F on the
// virtual stage before. B and I need the gradient of B or I on the virtual stage behind. A result
// is sent when its instruction ends, at no cost to the sender. Its arrival follows
// comm.Network.Travel, over the link of sender and receiver. An instruction begins at
//
//	start = max(end of the stage's instruction before + dispatch, arrival)
//
// Chunks of one stage exchange no messages. The schedule must pass Check; Run panics on a deadlock.
// Frozen virtual stages have F only, and no messages of gradients, as in the pipeline (see
// schedule.SkipFrozen). These are the first virtual stages, as long as their forwards take time and
// their backwards none. If weights have backwards but inputs have none anywhere, no gradients are
// sent (exit.stage2). B and I then need a message of no bytes, which the last virtual stage sends
// after its F of the microbatch.
func Run(s Step) Result {
	e := newEngine(s)
	return e.run(s.Replica)
}

// Makespan returns the seconds from the first start to the last end of a step
// whose messages are free. costs is by virtual stage.
func Makespan(s schedule.Schedule, costs []cost.Stage) float64 {
	return Run(Step{Schedule: s, Costs: costs}).Makespan()
}

// result summarises the engine's times.
func (e *engine) result() Result {
	r := Result{
		Summary: trace.Summary{Busy: e.busy, Start: math.Inf(1), End: math.Inf(-1)},
		Stage:   e.extents, Spans: e.spans, replica: e.replica, weights: e.weights,
	}
	for stage, x := range e.extents {
		if len(e.s.Schedule.Lists[stage]) > 0 {
			r.Start, r.End = min(r.Start, x.Start), max(r.End, x.End)
		}
	}
	r.Finish = max(0, r.End)
	return r
}
