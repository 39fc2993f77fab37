package cost

import (
	"encoding/json"
	"fmt"

	"dynmo/src/partition"
)

// Stage is what one microbatch costs on a virtual stage, in seconds.
type Stage struct{ Forward, Input, Weight float64 }

// Seconds returns f+i+w.
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

// Max returns the larger of the seconds of two costs.
func (s Stage) Max(t Stage) Stage {
	return Stage{max(s.Forward, t.Forward), max(s.Input, t.Input), max(s.Weight, t.Weight)}
}

// Over returns how many times the costs of t these are, 1 where t costs nothing.
func (s Stage) Over(t Stage) Stage {
	ratio := func(a, b float64) float64 {
		if b == 0 {
			return 1
		}
		return a / b
	}
	return Stage{ratio(s.Forward, t.Forward), ratio(s.Input, t.Input), ratio(s.Weight, t.Weight)}
}

// Times returns the seconds of s, each times that of factor.
func (s Stage) Times(factor Stage) Stage {
	return Stage{s.Forward * factor.Forward, s.Input * factor.Input, s.Weight * factor.Weight}
}

// Scale returns the cost on a rank that is slower by factor.
func (s Stage) Scale(factor float64) Stage {
	return Stage{s.Forward * factor, s.Input * factor, s.Weight * factor}
}

// Stages returns what every virtual stage costs that holds the layers of cuts:
// their sums, times the slowness of its stage (see For). A stage's fixed seconds count
// with its forwards, shared by its chunks.
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

// on returns what layers of a virtual stage cost on its stage.
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
