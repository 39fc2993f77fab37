package record

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/model"
	"dynmo/src/trace"
)

// Float is a number that JSON shows as null if it is not finite. So every parser can read the line
// of a diverged step.
type Float float64

// MarshalJSON returns the shortest decimal that converts back to f, or null.
func (f Float) MarshalJSON() ([]byte, error) {
	if x := float64(f); math.IsNaN(x) || math.IsInf(x, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// UnmarshalJSON reads a number. null becomes NaN: the file does not tell infinities from NaN.
func (f *Float) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*f = Float(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(f))
}

// Metrics has the figures of one training step. It is a line of metrics.jsonl. A line of a simulated
// run may stand for several equal steps. What a simulation does not know is null or absent.
type Metrics struct {
	Step            int    `json:"step"`
	Steps           int    `json:"steps,omitempty"` // equal steps from Step on, for which the line stands; absent: 1
	Clock           string `json:"clock"`           // wall, virtual or sim; the clock of StepSeconds and all other times
	Loss            Float  `json:"loss"`            // nats per token, mean over the global batch; null for a replayed or simulated run
	GradNorm        Float  `json:"grad_norm"`
	LR              Float  `json:"lr"`
	StepSeconds     Float  `json:"step_seconds"`    // from the first forward to the last update, on the slowest rank
	BalanceSeconds  Float  `json:"balance_seconds"` // measuring, deciding and moving, after the step; the next two are parts of it
	MeasureSeconds  Float  `json:"measuring_seconds"`
	MoveSeconds     Float  `json:"moving_seconds"`
	TokensPerSecond Float  `json:"tokens_per_second"`
	Makespan        Float  `json:"makespan"`     // from the first forward to the last backward, over all stages
	Predicted       Float  `json:"predicted"`    // the makespan from a simulation of the schedule on the step's costs
	Bottleneck      Float  `json:"bottleneck"`   // seconds per microbatch of the slowest stage, from the step's costs
	Optimum         Float  `json:"optimum"`      // the smallest possible bottleneck at these costs
	LowerBound      Float  `json:"lower_bound"`  // the least makespan of any schedule of the cuts, from the step's costs
	BubbleRatio     Float  `json:"bubble_ratio"` // in [0, 1]
	Imbalance       Float  `json:"imbalance"`    // (max - min) / mean of the stages' busy seconds
	// Headroom is an upper bound on the speedup by other cuts, from the step's costs: see
	// balance.Headroom. Its key is the same in records of all versions.
	Headroom Float `json:"ceiling"`
	// Idle is the idle seconds of the first replica, by cause.
	Idle     trace.Idle `json:"idle"`
	Schedule string     `json:"schedule"`     // the executed kind
	Cuts     []int      `json:"cuts"`         // of the chain, over virtual stages
	Vee      bool       `json:"vee,omitzero"` // virtual stages are arranged in a V (see partition.Map)
	// Ranks is the number of ranks of all replicas that train. Nodes is the number of hosts with
	// such a rank. Absent from older runs.
	Ranks int `json:"ranks,omitempty"`
	Nodes int `json:"nodes,omitempty"`
	// Throughput is the throughput of the step as a share of the dense model's. The dense model's
	// is predicted for all ranks before the model first changes. Absent if not known.
	Throughput     Float   `json:"throughput,omitzero"`
	LayersPerStage []int   `json:"layers_per_stage"`
	BytesPerStage  []int64 `json:"bytes_per_stage"` // of layers, buffers, and memory kept for other layers
	// AllocatedPerStage is the same as counted by the device: by stage the largest of its replicas.
	// Absent from older runs.
	AllocatedPerStage []int64 `json:"allocated_per_stage,omitempty"`
	// ResidentPerStage is the anonymous memory in RAM after the step, in bytes, above that of the
	// process after MPI started. By stage it is the largest of its replicas. Absent if ranks share
	// a process or the system does not report it.
	ResidentPerStage []int64 `json:"resident_per_stage,omitempty"`
	// JoulesPerToken is the energy of all GPUs since the run last started, divided by the tokens
	// trained on since then. Absent if energy is not measured.
	JoulesPerToken Float `json:"joules_per_token,omitzero"`
	// Replayed says that the loads of the step were forced (dynamic.replay): its loss has no
	// meaning.
	Replayed     bool  `json:"replayed,omitzero"`
	Skipped      bool  `json:"skipped,omitzero"`      // the update was left out because loss or gradient was not finite
	BatchSize    int   `json:"batch_size"`            // sequences of the step, of all replicas
	Microbatches int   `json:"microbatches,omitzero"` // of a replica, if it differs from the settings
	Sparsity     Float `json:"sparsity"`              // share of prunable parameters that are pruned, in [0, 1]; null if not known
	// Counts are the counts of layers, by name, then in chain order. Absent if no layer counts
	// anything.
	Counts []LayerCounts `json:"counts,omitempty"`
	// ValidationLoss is the loss on validation data after the step, in nats per token. The
	// perplexity is e to this loss. The seconds of validation are part of WallSeconds and of no
	// other number of the step. Absent if not measured.
	ValidationLoss       Float `json:"validation_loss,omitzero"`
	ValidationLastLoss   Float `json:"validation_last_loss,omitzero"` // of the same tokens at the last layer; absent if no token leaves early
	ValidationPerplexity Float `json:"validation_perplexity,omitzero"`
	ValidationSeconds    Float `json:"validation_seconds,omitzero"`
	// Plasticity is, by number of the layer, the change of the layer's output since its reference
	// was made (see dynamic.Plasticity). EvaluationSeconds is the time of computing that change,
	// summed over all stages. StepSeconds contains it. Absent from steps in which no layer was
	// evaluated.
	Plasticity        map[int]float64 `json:"plasticity,omitempty"`
	EvaluationSeconds Float           `json:"evaluation_seconds,omitzero"`
	// Time is the time of day at the end of the step, in UTC. Absent from older runs.
	Time time.Time `json:"time,omitzero"`
	// WallSeconds is real time since training began, on any clock setting. It excludes the time
	// between an end of the run and its next start. For a simulated run it is simulated time.
	WallSeconds Float `json:"wall_seconds"`
}

// Iteration returns the number under which the log and TensorBoard show a step: the number of steps that are
// done after it, as Megatron-LM counts. All else counts steps from 0, as settings do.
func Iteration(step int) int { return step + 1 }

// Next returns the step behind the steps of the line.
func (m Metrics) Next() int { return m.Step + max(1, m.Steps) }

// Validated reports whether the validation loss was measured after the step.
func (m Metrics) Validated() bool { return m.ValidationLoss != 0 || m.ValidationSeconds != 0 }

// ModelFLOPs returns the floating-point operations per second and rank that the step would have had in the dense
// model: those of model.Config.Flops for each token, whatever was pruned, frozen or skipped, and without what is
// computed a second time (Chowdhery et al. 2022, appendix B). It is 0 if the time or the ranks are not known.
func (m Metrics) ModelFLOPs(c config.Config) float64 {
	ranks := m.Ranks
	if ranks == 0 {
		ranks = c.Parallel.Stages * c.Parallel.Replicas
	}
	if !(m.StepSeconds > 0) {
		return 0
	}
	return model.FromConfig(c).Flops() * m.Size(c).Tokens / float64(m.StepSeconds) / float64(ranks)
}

// Size returns the tokens and microbatches of the step, of all replicas.
func (m Metrics) Size(c config.Config) dynamic.Step {
	microbatches := max(1, m.BatchSize/c.Parallel.MicrobatchSize)
	if m.Microbatches > 0 {
		microbatches = microbatches * m.Microbatches / c.Parallel.Microbatches
	}
	return dynamic.Step{Tokens: float64(m.BatchSize * c.Model.Sequence), Microbatches: float64(microbatches)}
}

// EventKind is the kind of an Event.
type EventKind string

// Kinds of events.
const (
	Dynamic EventKind = "dynamic"    // the model changed
	Balance EventKind = "balance"    // cuts were decided
	Migrate EventKind = "migrate"    // layers moved
	Place   EventKind = "place"      // pieces of layers moved to other replicas
	Slow    EventKind = "straggler"  // a rank became slower than the others, or recovered
	Repack  EventKind = "repack"     // the model was packed onto fewer ranks
	Release EventKind = "release"    // ranks without layers ended, or their nodes were returned to Slurm
	Saved   EventKind = "checkpoint" // a checkpoint was written, or could not be written
	Resumed EventKind = "resume"     // the run was started again at the event's step
	GPU     EventKind = "gpu"        // state of rank 0's GPU at the end of a run
)

// Refused returns the reason why a move was not possible or nodes were not returned, "" if there is
// none.
func (e Event) Refused() string {
	text, _ := e.Detail[refusedKey].(string)
	return text
}

// Moved reports whether layers moved.
func (e Event) Moved() bool { return (e.Kind == Migrate || e.Kind == Repack) && e.Refused() == "" }

// Event is a change of the model or its layout. It is a line of events.jsonl. Before, Predicted and
// After are the makespan of a step, in seconds on Clock. A value of 0 was not measured and is left
// out.
type Event struct {
	Step      int            `json:"step"`
	Kind      EventKind      `json:"kind"`
	Clock     string         `json:"clock"`
	Before    Float          `json:"before,omitzero"`
	Predicted Float          `json:"predicted,omitzero"`
	After     Float          `json:"after,omitzero"`
	Bytes     int64          `json:"bytes"`            // sent between ranks, of all Count events
	Count     int            `json:"count,omitempty"`  // equal events for which the line of a simulated run stands; absent: 1
	Seconds   Float          `json:"seconds"`          // duration of the event itself
	Detail    map[string]any `json:"detail,omitempty"` // figures that only this kind has; finite numbers
}

// LayerCounts is a count of a layer in a step, such as the tokens that left at an exit. Values are
// summed over the microbatches of the step.
type LayerCounts struct {
	Layer  string  `json:"layer"`
	Name   string  `json:"name"`
	Values []int64 `json:"values"`
}

// layerCounts returns the counts of a step, sorted by name and then by layer of the chain.
func layerCounts(counts []cost.CountSum, layers []cost.Layer) (list []LayerCounts) {
	for _, c := range counts {
		list = append(list, LayerCounts{layers[c.Layer].Name, c.Name, c.Values})
	}
	slices.SortStableFunc(list, func(a, b LayerCounts) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
