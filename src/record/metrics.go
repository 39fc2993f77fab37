package record

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"dynmo/src/cost"
	"dynmo/src/trace"
)

// Float is a number that JSON shows as null if it is not finite. So every parser reads the line
// of a diverged step.
type Float float64

// MarshalJSON returns the shortest decimal that reads back as f, or null.
func (f Float) MarshalJSON() ([]byte, error) {
	if x := float64(f); math.IsNaN(x) || math.IsInf(x, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// UnmarshalJSON reads a number. null becomes NaN: which of the numbers that
// are not finite it was is not recorded.
func (f *Float) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*f = Float(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(f))
}

// Metrics holds the figures of one training step: a line of metrics.jsonl.
type Metrics struct {
	Step            int    `json:"step"`
	Clock           string `json:"clock"` // wall, virtual or sim: of StepSeconds and all other times
	Loss            Float  `json:"loss"`  // nats per token, mean over the global batch; null of a replayed run
	GradNorm        Float  `json:"grad_norm"`
	LR              Float  `json:"lr"`
	StepSeconds     Float  `json:"step_seconds"`    // from the first forward to the last update, on the slowest rank
	BalanceSeconds  Float  `json:"balance_seconds"` // measuring, deciding and moving, after the step
	TokensPerSecond Float  `json:"tokens_per_second"`
	Makespan        Float  `json:"makespan"`     // from the first forward to the last backward, over all stages
	Predicted       Float  `json:"predicted"`    // the makespan that simulating the schedule on the step's costs gives
	Bottleneck      Float  `json:"bottleneck"`   // seconds per microbatch of the slowest stage, from the step's costs
	Optimum         Float  `json:"optimum"`      // the smallest possible bottleneck with these costs
	BubbleRatio     Float  `json:"bubble_ratio"` // in [0, 1]
	Imbalance       Float  `json:"imbalance"`    // (max - min) / mean of the stages' busy seconds
	// Headroom bounds how many times faster other cuts could make the step, from its
	// costs: see balance.Headroom. Its key is that of records of all versions.
	Headroom Float `json:"ceiling"`
	// Idle is idle seconds by cause, of the first replica.
	Idle     trace.Idle `json:"idle"`
	Schedule string     `json:"schedule"`     // the kind that was executed
	Cuts     []int      `json:"cuts"`         // of the chain, over virtual stages
	Vee      bool       `json:"vee,omitzero"` // virtual stages lie in a V (see partition.Map)
	// Ranks is how many ranks train, of all replicas, and Nodes how many hosts have one of
	// them. Absent from older runs.
	Ranks int `json:"ranks,omitempty"`
	Nodes int `json:"nodes,omitempty"`
	// Throughput is that of the step as a share of the dense model's: of a step on all
	// ranks, as it was predicted before the model first changed. Absent where that is not known.
	Throughput     Float   `json:"throughput,omitzero"`
	LayersPerStage []int   `json:"layers_per_stage"`
	BytesPerStage  []int64 `json:"bytes_per_stage"` // of layers, buffers and memory that waits for other layers
	// AllocatedPerStage is the same as the device counts it, of each stage the most of its
	// replicas. Absent from older runs.
	AllocatedPerStage []int64 `json:"allocated_per_stage,omitempty"`
	// ResidentPerStage is anonymous memory in RAM after the step, in bytes, beyond
	// that of the process once MPI had started: of each stage the largest of its
	// replicas. Absent where ranks share a process or the system does not report it.
	ResidentPerStage []int64 `json:"resident_per_stage,omitempty"`
	// JoulesPerToken is the energy that all GPUs have used since the run was last
	// started, by the tokens trained on since. Absent where it is not metered.
	JoulesPerToken Float `json:"joules_per_token,omitzero"`
	// Replayed says that loads of the step were forced (dynamic.replay): its loss means nothing.
	Replayed     bool  `json:"replayed,omitzero"`
	Skipped      bool  `json:"skipped,omitzero"`      // the update was left out: loss or gradient not finite
	BatchSize    int   `json:"batch_size"`            // sequences of the step, of all replicas
	Microbatches int   `json:"microbatches,omitzero"` // of a replica, where they are other than the settings have
	Sparsity     Float `json:"sparsity"`              // share of prunable parameters that are pruned, in [0, 1]
	// Counts is what layers counted, by name, then in chain order. Absent where none counts.
	Counts []LayerCounts `json:"counts,omitempty"`
	// ValidationLoss is the loss of data that nothing is trained on, in nats per token,
	// after the step; its perplexity is e to that; and the seconds that it took are in no
	// other number of the step but WallSeconds. Absent where it was not measured.
	ValidationLoss       Float `json:"validation_loss,omitzero"`
	ValidationLastLoss   Float `json:"validation_last_loss,omitzero"` // of the same tokens at the last layer; absent where none leaves before it
	ValidationPerplexity Float `json:"validation_perplexity,omitzero"`
	ValidationSeconds    Float `json:"validation_seconds,omitzero"`
	// Plasticity is, by the number of the layer, how far what leaves it has come since its
	// reference was made (see dynamic.Plasticity); EvaluationSeconds is what finding that
	// out took, in all stages together, which StepSeconds contains. Absent from steps in
	// which no layer was evaluated.
	Plasticity        map[int]float64 `json:"plasticity,omitempty"`
	EvaluationSeconds Float           `json:"evaluation_seconds,omitzero"`
	// Time is the time of day at which the step was over, in UTC. Absent from older runs.
	Time time.Time `json:"time,omitzero"`
	// WallSeconds is real time since training began, whatever the clock, without what
	// passed between an end of the run and its next start.
	WallSeconds Float `json:"wall_seconds"`
}

// Validated reports whether the validation loss was measured after the step.
func (m Metrics) Validated() bool { return m.ValidationLoss != 0 || m.ValidationSeconds != 0 }

// EventKind is the kind of an Event.
type EventKind string

// Kinds of events.
const (
	Dynamic EventKind = "dynamic"    // the model changed
	Balance EventKind = "balance"    // cuts were decided
	Migrate EventKind = "migrate"    // layers moved
	Place   EventKind = "place"      // pieces of layers moved to other replicas
	Slow    EventKind = "straggler"  // a rank is slower than the others, or so no longer
	Repack  EventKind = "repack"     // the model was packed onto fewer ranks
	Release EventKind = "release"    // ranks without layers ended, or their nodes went back to Slurm
	Saved   EventKind = "checkpoint" // a checkpoint was written, or could not be
	Resumed EventKind = "resume"     // the run was started again, with the event's step
	GPU     EventKind = "gpu"        // how the GPU of rank 0 fares, at the end of a run
)

// Refused returns why a move could not be had, or nodes not be given back, "" if they could.
func (e Event) Refused() string {
	text, _ := e.Detail[refusedKey].(string)
	return text
}

// Moved reports whether layers moved.
func (e Event) Moved() bool { return (e.Kind == Migrate || e.Kind == Repack) && e.Refused() == "" }

// Event is a change of the model or its layout: a line of events.jsonl.
// Before, Predicted and After are the makespan of a step, in seconds on Clock;
// a 0 was not measured and is left out.
type Event struct {
	Step      int            `json:"step"`
	Kind      EventKind      `json:"kind"`
	Clock     string         `json:"clock"`
	Before    Float          `json:"before,omitzero"`
	Predicted Float          `json:"predicted,omitzero"`
	After     Float          `json:"after,omitzero"`
	Bytes     int64          `json:"bytes"`            // sent between ranks
	Seconds   Float          `json:"seconds"`          // that the event itself took
	Detail    map[string]any `json:"detail,omitempty"` // figures of this kind alone; finite numbers
}

// LayerCounts is what a layer counted in a step: as tokens that left at an exit.
// Values are summed over the step's microbatches.
type LayerCounts struct {
	Layer  string  `json:"layer"`
	Name   string  `json:"name"`
	Values []int64 `json:"values"`
}

// layerCounts returns the counts of a step by name and layer of the chain.
func layerCounts(counts []cost.CountSum, layers []cost.Layer) (list []LayerCounts) {
	for _, c := range counts {
		list = append(list, LayerCounts{layers[c.Layer].Name, c.Name, c.Values})
	}
	slices.SortStableFunc(list, func(a, b LayerCounts) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
