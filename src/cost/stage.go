package cost

import "dynmo/src/partition"

// Stage is what one microbatch costs on a virtual stage, in seconds.
type Stage struct{ Forward, Input, Weight float64 }

// Seconds returns f+i+w.
func (s Stage) Seconds() float64 { return s.Forward + s.Input + s.Weight }

// Scale returns the cost on a rank that is so many times slower.
func (s Stage) Scale(factor float64) Stage {
	return Stage{s.Forward * factor, s.Input * factor, s.Weight * factor}
}

// Stages returns what every virtual stage costs that holds the layers of cuts:
// their sums, times the slowness of its stage. A stage's fixed seconds count
// with its forwards, shared by its chunks.
func (t Table) Stages(cuts partition.Partition, m partition.Map) []Stage {
	list := make([]Stage, m.Virtual())
	for v := range list {
		lo, hi := cuts.Range(v)
		for _, l := range t.Layers[lo:hi] {
			list[v].Forward += l.Forward
			list[v].Input += l.BackwardInput
			list[v].Weight += l.BackwardWeight
		}
		stage := m.Stage(v)
		if t.Slow != nil {
			list[v] = list[v].Scale(t.Slow[stage])
		}
		if t.Fixed != nil {
			list[v].Forward += t.Fixed[stage] / float64(m.Chunks)
		}
	}
	return list
}
