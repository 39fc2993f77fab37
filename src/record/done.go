package record

import (
	"math"

	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/trace"
)

// Measured is what was measured in a step.
type Measured struct {
	cost.Measurement                // with the dispatch overhead
	Known            *cost.Known    // the part of the costs that the estimator used; nil: it is not recorded
	Summary          trace.Summary  // of the slowest replica
	Memory           []trace.Memory // by stage: the largest of the replicas; nil: not known
	Joules           float64        // of all ranks since the run last started; not positive: not known
	Instructions     [][]trace.Span // by stage: the work of the first replica
}

// Done is the data of a step that the loop passes on when the step and the work after it are over.
type Done struct {
	Step             int
	Steps            int // equal steps from Step on, in a simulated run; 0 is 1
	Loss, Norm, LR   float64
	Skipped          bool // whether the update was left out
	Measured         Measured
	Model            string          // settings under which the costs are valid (see cost.Phase)
	Analysis         plan.Analysis   // how well the layout of the step fits the costs
	Plasticity       map[int]float64 // see Metrics
	Evaluating       float64         // seconds of computing Plasticity
	Ran, Next        layout.Layout   // layouts of the step and of the next step
	Why              plan.Reason
	Moved            layout.Moved
	Start            float64 // when the step began, on the clock
	Elapsed          float64 // in a simulated run: seconds from its begin to the end of the steps
	Measuring        float64 // part of Deciding: seconds of measuring the step
	Deciding, Moving float64 // seconds: measuring and deciding, then moving
	Resizing         float64 // part of Moving: making new groups of ranks
	Resident         bool    // whether the memory in RAM is known
	Validation       *Validation
	Stragglers       []Straggler
}

// event returns an event of each of the steps.
func (d Done) event(e Event) Event {
	if d.Steps > 1 {
		e.Count, e.Bytes = d.Steps, int64(d.Steps)*e.Bytes
	}
	return e
}

// Validation is the validation loss after a step, in the layout of the step. It is nil after most
// steps.
type Validation struct {
	Loss    float64 // nats per token, of each token at the layer where it leaves
	Last    float64 // of all tokens at the last layer; equals Loss if no token leaves earlier
	Seconds float64 // seconds of measuring it, on the clock
}

// leave reports whether some tokens leave before the last layer.
func (v Validation) leave() bool { return v.Last != v.Loss && !math.IsNaN(v.Loss) }

// Perplexity is e to the loss.
func (v Validation) Perplexity() float64 { return math.Exp(v.Loss) }
