package cost

// Measurement is what a step showed of the layers, the same on every rank.
type Measurement struct {
	Table             // medians over the step's microbatches, the largest of the replicas
	Samples [][]Stage // by layer and microbatch of a replica: the largest of the replicas; nil if the step was not sampled
	// Work is by layer and microbatch of a replica the share of the full microbatch's tokens
	// that the layer worked on, the largest of the replicas; nil, or nil of a layer, where
	// that is all of them.
	Work   [][]float64
	Fixed  []float64 // by layer: of its passes on a full microbatch the share of the seconds that passes on few tokens take too; nil where Work is
	Counts []Count   // what layers reported, ascending by layer, microbatch and name
}

// Count is numbers that a layer reports of one microbatch, as tokens
// that left at an exit.
type Count struct {
	Name       string  `json:"name"`
	Layer      int     `json:"layer"`
	Microbatch int     `json:"microbatch"` // global
	Values     []int64 `json:"values"`
}
