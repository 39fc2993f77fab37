package cost

// Memory is the bytes of a stage by purpose.
type Memory struct {
	Weights     int64 `json:"weights"` // with masks and indices
	Gradients   int64 `json:"gradients"`
	Moments     int64 `json:"moments"`     // and, in bfloat16, master weights
	Activations int64 `json:"activations"` // of microbatches in flight, with their W-stash (kept between I and W)
	Recomputed  int64 `json:"recomputed"`  // what layers compute a second time
	Boundary    int64 `json:"boundary"`    // what passes between stages
	Scratch     int64 `json:"scratch"`     // what all layers of the stage use in turn
	Batch       int64 `json:"batch"`       // positions and offsets of tokens
	Sums        int64 `json:"sums"`        // others' gradients while sums run
}

// Plus returns the sum of two.
func (m Memory) Plus(o Memory) Memory {
	return Memory{
		m.Weights + o.Weights, m.Gradients + o.Gradients, m.Moments + o.Moments, m.Activations + o.Activations, m.Recomputed + o.Recomputed,
		m.Boundary + o.Boundary, m.Scratch + o.Scratch, m.Batch + o.Batch, m.Sums + o.Sums,
	}
}

// Total returns all bytes.
func (m Memory) Total() int64 {
	return m.Weights + m.Gradients + m.Moments + m.Activations + m.Recomputed + m.Boundary + m.Scratch + m.Batch + m.Sums
}

// Memory returns the layer's bytes with some microbatches in flight, some of these between
// their two backwards, and some with what the layer computes again.
func (b Bytes) Memory(inFlight, between, recomputed int) Memory {
	return Memory{
		Weights: b.Parameters, Gradients: b.Gradients, Moments: b.Optimizer, Sums: b.Workspace,
		Activations: int64(inFlight)*b.Activations + int64(between)*b.Held, Recomputed: int64(recomputed) * b.Recomputed,
	}
}
