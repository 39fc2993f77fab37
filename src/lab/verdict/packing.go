package verdict

import "dynmo/src/record"

// Packing is the result of packing onto fewer ranks in a run. Hours and nodes refer to real time.
// Seconds, rates and means refer to the run's clock.
type Packing struct {
	Clock      string       `json:"clock"`
	RanksFirst int          `json:"ranks_first"` // ranks that trained in the first step
	RanksLast  int          `json:"ranks_last"`  // ranks that trained in the last step
	MeanRanks  record.Float `json:"mean_ranks"`  // weighted by the seconds of steps
	// FreeRankSeconds is the seconds of steps times the ranks that did not train in them.
	FreeRankSeconds record.Float `json:"free_rank_seconds"`
	NodesFirst      int          `json:"nodes_first"` // hosts with a rank that trained in the first step
	NodesLast       int          `json:"nodes_last"`
	// NodesGivenBack is the number of nodes that Slurm has taken back. HoursGivenBack is the hours
	// of these nodes from then to the end of the run.
	NodesGivenBack int          `json:"nodes_given_back"`
	HoursGivenBack record.Float `json:"node_hours_given_back"`
	// NodesIdle is the number of nodes that are allocated but have no rank that trains in the
	// last step. HoursIdle is the hours of such nodes in all steps.
	NodesIdle int          `json:"nodes_idle"`
	HoursIdle record.Float `json:"node_hours_idle"`
	Packings  int          `json:"packings"`
	Releases  int          `json:"releases"`        // returns of nodes that Slurm accepted
	Failed    int          `json:"releases_failed"` // returns of nodes that Slurm refused
	// Throughput is the measured tokens per second as a share of the dense model's. Both are
	// medians over the second half of steps: the steps with the last number of ranks, and those
	// before the model first changed. ThroughputLeast is the smallest share since the first
	// packing, over all numbers of ranks. Predicted is the prediction of the last packing. Absent
	// if not known.
	Throughput      record.Float `json:"throughput,omitzero"`
	ThroughputLeast record.Float `json:"throughput_least,omitzero"`
	Predicted       record.Float `json:"throughput_predicted,omitzero"`
	Segments        []Segment    `json:"segments"`
}

// Segment is consecutive steps with one number of ranks.
type Segment struct {
	Step       int          `json:"step"` // the first step
	Steps      int          `json:"steps"`
	Ranks      int          `json:"ranks"`
	Nodes      int          `json:"nodes"`
	Seconds    record.Float `json:"step_seconds"`        // median over the second half of the steps
	Throughput record.Float `json:"throughput,omitzero"` // see Packing.Throughput
	Predicted  record.Float `json:"throughput_predicted,omitzero"`
}

// Measured returns the throughput of the segment that begins at `step`, as a share of the dense
// model's. It is 0 if that is not known.
func (p Packing) Measured(step int) record.Float {
	for _, s := range p.Segments {
		if s.Step == step {
			return s.Throughput
		}
	}
	return 0
}
