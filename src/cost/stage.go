package cost

import (
	"encoding/json"
	"fmt"

	"dynmo/src/partition"
)

// Stage is the cost of one microbatch on a virtual stage, in seconds.
type Stage struct{ Forward, Input, Weight float64 }

// Seconds returns the sum of the three passes.
func (s Stage) Seconds() float64 { return s.Forward + s.Input + s.Weight }

// MarshalJSON writes the three numbers as an array.
func (s Stage) MarshalJSON() ([]byte, error) {
	return json.Marshal([3]float64{s.Forward, s.Input, s.Weight})
}

// UnmarshalJSON reads an array of three numbers.
func (s *Stage) UnmarshalJSON(text []byte) error {
	var list []float64
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if len(list) != 3 {
		return fmt.Errorf("%d numbers, want forward, backward-input and backward-weight", len(list))
	}
	s.Forward, s.Input, s.Weight = list[0], list[1], list[2]
	return nil
}

// Plus returns the sum of two costs.
func (s Stage) Plus(t Stage) Stage {
	return Stage{s.Forward + t.Forward, s.Input + t.Input, s.Weight + t.Weight}
}

// Max returns the larger cost for each pass.
func (s Stage) Max(t Stage) Stage {
	return Stage{max(s.Forward, t.Forward), max(s.Input, t.Input), max(s.Weight, t.Weight)}
}

// Over returns the costs divided by those of t, 1 where t is 0.
func (s Stage) Over(t Stage) Stage {
	ratio := func(a, b float64) float64 {
		if b == 0 {
			return 1
		}
		return a / b
	}
	return Stage{ratio(s.Forward, t.Forward), ratio(s.Input, t.Input), ratio(s.Weight, t.Weight)}
}

// Times returns the product of s and factor for each pass.
func (s Stage) Times(factor Stage) Stage {
	return Stage{s.Forward * factor.Forward, s.Input * factor.Input, s.Weight * factor.Weight}
}

// Scale returns the cost multiplied by factor, as on a rank that is slower by factor.
func (s Stage) Scale(factor float64) Stage {
	return Stage{s.Forward * factor, s.Input * factor, s.Weight * factor}
}

// Stages returns the cost of every virtual stage with the layers of cuts: the sum over its layers,
// times the slowness of its stage. A stage's fixed seconds are added to its forwards, divided among
// its chunks.
func (t Table) Stages(cuts partition.Partition, m partition.Map) []Stage {
	list := make([]Stage, m.Virtual())
	t = t.Fitted(m.Stages)
	for v := range list {
		lo, hi := cuts.Range(v)
		for _, l := range t.Layers[lo:hi] {
			list[v] = list[v].Plus(l.Stage())
		}
		list[v] = t.on(m, v, list[v])
	}
	return list
}

// on returns the cost on its stage of the layers of a virtual stage.
func (t Table) on(m partition.Map, v int, layers Stage) Stage {
	stage := m.Stage(v)
	if t.Slow != nil {
		layers = layers.Scale(t.Slow[stage])
	}
	if t.Fixed != nil {
		layers.Forward += t.Fixed[stage] / float64(m.Chunks)
	}
	return layers
}
