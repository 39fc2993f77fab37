package record

// Packing is what packing onto fewer ranks came to in a run. Hours and nodes are by real
// time; seconds, rates and means are by the run's clock.
type Packing struct {
	Clock      string `json:"clock"`
	RanksFirst int    `json:"ranks_first"` // that trained in the first step
	RanksLast  int    `json:"ranks_last"`  // likewise in the last
	MeanRanks  Float  `json:"mean_ranks"`  // over the seconds of steps
	// FreeRankSeconds is the seconds of steps, times the ranks that did not train in them.
	FreeRankSeconds Float `json:"free_rank_seconds"`
	NodesFirst      int   `json:"nodes_first"` // hosts with a rank that trained in the first step
	NodesLast       int   `json:"nodes_last"`
	// NodesGivenBack is how many nodes Slurm has taken back, and HoursGivenBack their
	// hours since then until the end of the run.
	NodesGivenBack int   `json:"nodes_given_back"`
	HoursGivenBack Float `json:"node_hours_given_back"`
	// NodesIdle is how many nodes have no rank that trains in the last step but are still
	// allocated, and HoursIdle the hours of such nodes in all steps.
	NodesIdle int   `json:"nodes_idle"`
	HoursIdle Float `json:"node_hours_idle"`
	Packings  int   `json:"packings"`
	Releases  int   `json:"releases"`        // in which Slurm took nodes back
	Failed    int   `json:"releases_failed"` // in which it did not, though it was asked
	// Throughput is tokens per second as a share of the dense model's, measured: medians of
	// the second half of the steps with the last number of ranks and of those before the
	// model first changed. ThroughputLeast is the least of all numbers of ranks since the
	// first packing, and Predicted what the last packing foretold. Absent where not known.
	Throughput      Float     `json:"throughput,omitzero"`
	ThroughputLeast Float     `json:"throughput_least,omitzero"`
	Predicted       Float     `json:"throughput_predicted,omitzero"`
	Segments        []Segment `json:"segments"`
}

// Segment is consecutive steps on one number of ranks.
type Segment struct {
	Step       int   `json:"step"` // the first
	Steps      int   `json:"steps"`
	Ranks      int   `json:"ranks"`
	Nodes      int   `json:"nodes"`
	Seconds    Float `json:"step_seconds"`        // median of the second half
	Throughput Float `json:"throughput,omitzero"` // as Packing has it
	Predicted  Float `json:"throughput_predicted,omitzero"`
}

// Measured returns the throughput of the steps from one on that had one number of ranks, as
// a share of the dense model's; 0 where that is not known.
func (p Packing) Measured(step int) Float {
	for _, s := range p.Segments {
		if s.Step == step {
			return s.Throughput
		}
	}
	return 0
}
