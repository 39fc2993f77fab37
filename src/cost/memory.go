package cost

// Memory is the bytes of a stage by purpose.
type Memory struct {
	Weights     int64 `json:"weights"` // with masks and indices
	Gradients   int64 `json:"gradients"`
	Moments     int64 `json:"moments"`     // with master weights, if weights are bfloat16
	Activations int64 `json:"activations"` // of microbatches in flight, with their W-stash (kept between I and W)
	Recomputed  int64 `json:"recomputed"`  // of a second forward
	Boundary    int64 `json:"boundary"`    // activations and gradients sent between stages
	Scratch     int64 `json:"scratch"`     // buffers that the layers of the stage use in turn
	Batch       int64 `json:"batch"`       // positions and offsets of tokens
	Sums        int64 `json:"sums"`        // buffers for gradients of other replicas during sums
}

// Plus returns the sum by purpose.
func (m Memory) Plus(o Memory) Memory {
	return Memory{
		m.Weights + o.Weights, m.Gradients + o.Gradients, m.Moments + o.Moments, m.Activations + o.Activations, m.Recomputed + o.Recomputed,
		m.Boundary + o.Boundary, m.Scratch + o.Scratch, m.Batch + o.Batch, m.Sums + o.Sums,
	}
}

// Total returns the sum over all purposes.
func (m Memory) Total() int64 {
	return m.Weights + m.Gradients + m.Moments + m.Activations + m.Recomputed + m.Boundary + m.Scratch + m.Batch + m.Sums
}

// Memory returns the layer's bytes for these numbers of microbatches: in flight, between I and W,
// and with recomputed values.
func (b Bytes) Memory(inFlight, between, recomputed int) Memory {
	return Memory{
		Weights: b.Parameters, Gradients: b.Gradients, Moments: b.Optimizer, Sums: b.Workspace,
		Activations: int64(inFlight)*b.Activations + int64(between)*b.Held, Recomputed: int64(recomputed) * b.Recomputed,
	}
}
