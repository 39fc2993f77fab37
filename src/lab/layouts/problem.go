package layouts

import (
	"fmt"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// Problem is a chain of layers, and the rules by which it may be cut.
type Problem struct {
	Layers       []cost.Layer
	Deviation    []float64 // by layer: standard error of its seconds, relative to them, one for all layers of a kind; nil: 0
	Stages       int
	Chunks       int // virtual stages on each stage
	Microbatches int
	Schedule     schedule.Kind
	Memory       int64   // bytes of a stage, at most; 0: no limit
	Message      float64 // seconds of a message between two stages
	// Slower returns the seconds that messages take longer under a layout; nil: 0.
	Slower func(cuts partition.Partition) float64

	Inside []bool                               // by layer: whether it is inside a block, where a cut is worse than another with an equal step; nil: none is
	CanCut []bool                               // by layer: whether a virtual stage may begin with it
	Empty  bool                                 // virtual stages may be empty; the first and the last never are
	Legal  func(cuts partition.Partition) error // further rules; nil: none
	// Candidates are the only layouts that are compared, where a trainer can make few; nil: all that obey the
	// rules.
	Candidates []partition.Partition
}

// Layout is a way to cut the chain, with its simulated step.
type Layout struct {
	Cuts    partition.Partition `json:"cuts"`    // of the layers, over virtual stages
	Seconds float64             `json:"seconds"` // of a step
	Busy    []float64           `json:"busy"`    // by stage: seconds of work in a step
	Bytes   []int64             `json:"bytes"`   // by stage: the most memory in a step
	Bound   float64             `json:"bound"`   // seconds that no order of this work beats
	Idle    Idle                `json:"idle"`
}

// Idle has the seconds of a step by cause, each a mean over the stages. They add up to the step.
type Idle struct {
	Busy      float64 `json:"busy"`
	Inherent  float64 `json:"inherent"`  // idle time of the same schedule if all virtual stages were equal
	Imbalance float64 `json:"imbalance"` // more idle time, because virtual stages are unequal
	Messages  float64 `json:"messages"`  // more idle time, because messages take time
}

// solver evaluates layouts of a problem.
type solver struct {
	Problem
	*stepper
	starts []int // by unit: its first layer; then the number of layers
	sums   []sums
	costs  []cost.Stage // of virtual stages, for the layout that is evaluated
	used   int          // instructions that were simulated
}

// sums are the sums over the layers before a unit.
type sums struct {
	cost.Stage
	static, activations, held int64
}

// mostInstructions bounds the passes of a step, whose order is in memory: some 60 bytes for each.
const mostInstructions = 1 << 24

// newSolver prepares a problem. An error says what is wrong with it.
func newSolver(p Problem) (*solver, error) {
	if n := 2 * p.Stages * p.Chunks * p.Microbatches; n > mostInstructions {
		return nil, fmt.Errorf("%d passes in a step of %d stages x %d chunks with %d microbatches, want at most %d", n, p.Stages, p.Chunks, p.Microbatches, mostInstructions)
	}
	s, err := schedule.New(p.Schedule, p.Stages, p.Chunks, p.Microbatches)
	if err != nil {
		return nil, err
	}
	v := &solver{Problem: p, stepper: newStepper(s), costs: make([]cost.Stage, s.Map.Virtual())}
	for l := range p.Layers {
		if l == 0 || p.CanCut[l] {
			v.starts = append(v.starts, l)
		}
	}
	v.starts = append(v.starts, len(p.Layers))
	total := v.sum(p.Layers)
	if least := v.least(); v.units() < least {
		return nil, fmt.Errorf("%d places for the parts of %d virtual stages, want at least %d", v.units(), s.Map.Virtual(), least)
	}
	if total.Seconds() <= 0 {
		return nil, fmt.Errorf("every layer takes 0 seconds")
	}
	return v, nil
}

// sum sets the costs of the layers. It returns those of all.
func (v *solver) sum(layers []cost.Layer) sums {
	total := sums{}
	v.sums = []sums{total}
	for u := range v.units() {
		for _, layer := range layers[v.starts[u]:v.starts[u+1]] {
			total.Stage = total.Plus(layer.Stage())
			total.static += layer.Bytes.Static()
			total.activations += layer.Bytes.Activations
			total.held += layer.Bytes.Held
		}
		v.sums = append(v.sums, total)
	}
	return total
}

// units returns the number of runs of layers that are not cut.
func (v *solver) units() int { return len(v.starts) - 1 }

// virtual returns the number of virtual stages.
func (v *solver) virtual() int { return len(v.costs) }

// least returns the smallest number of units that can be laid out.
func (v *solver) least() int {
	if v.Empty {
		return min(2, v.virtual())
	}
	return v.virtual()
}

// room returns the range of units with which virtual stage k may begin, if stage k-1 begins at `from`.
func (v *solver) room(k, from int) (lo, hi int) {
	if v.Empty {
		return max(1, from), v.units() - 1
	}
	return from + 1, v.units() - (v.virtual() - k)
}

// between returns the sums over the units [lo, hi).
func (v *solver) between(lo, hi int) sums {
	a, b := v.sums[lo], v.sums[hi]
	return sums{
		Stage:  cost.Stage{Forward: b.Forward - a.Forward, Input: b.Input - a.Input, Weight: b.Weight - a.Weight},
		static: b.static - a.static, activations: b.activations - a.activations, held: b.held - a.held,
	}
}

// layers returns the cuts of layers of cuts of units.
func (v *solver) layers(units []int) partition.Partition {
	cuts := make(partition.Partition, len(units))
	for k, u := range units {
		cuts[k] = v.starts[u]
	}
	return cuts
}

// unitsOf returns the cuts of units of cuts of layers. It reports false if a unit is cut.
func (v *solver) unitsOf(cuts partition.Partition) ([]int, bool) {
	units := make([]int, len(cuts))
	for k, l := range cuts {
		u, ok := slices.BinarySearch(v.starts, l)
		if !ok {
			return nil, false
		}
		units[k] = u
	}
	return units, true
}

// evaluate returns the seconds of a step under cuts of units.
func (v *solver) evaluate(units []int) float64 {
	for k := range v.costs {
		v.costs[k] = v.between(units[k], units[k+1]).Stage
	}
	v.used += len(v.list)
	return v.seconds(v.costs, v.message(units))
}

// message returns the seconds of a message under cuts of units.
func (v *solver) message(units []int) float64 {
	if v.Slower == nil {
		return v.Message
	}
	return v.Message + v.Slower(v.layers(units))
}

// bytes returns by stage the most memory in a step.
func (v *solver) bytes(units []int) []int64 {
	list := make([]int64, v.Stages)
	for stage, instructions := range v.schedule.Lists {
		now := int64(0)
		for chunk := range v.Chunks {
			k := v.schedule.Map.Place(stage, chunk)
			now += v.between(units[k], units[k+1]).static
		}
		most := now
		for _, in := range instructions {
			k := v.schedule.Map.Place(stage, in.Chunk)
			s := v.between(units[k], units[k+1])
			switch in.Op {
			case schedule.F:
				now += s.activations
			case schedule.I:
				now += s.held - s.activations
			case schedule.B:
				most = max(most, now+s.held-s.activations)
				now -= s.activations
			default:
				now -= s.held
			}
			most = max(most, now)
		}
		list[stage] = most
	}
	return list
}

// describe returns the layout of cuts of units.
func (v *solver) describe(units []int) Layout {
	out := Layout{Cuts: v.layers(units), Seconds: v.evaluate(units), Busy: make([]float64, v.Stages), Bytes: v.bytes(units)}
	total := cost.Stage{}
	for k, c := range v.costs {
		out.Busy[v.schedule.Map.Stage(k)] += c.Seconds() * float64(v.Microbatches)
		total = total.Plus(c)
	}
	out.Bound = v.bound()
	out.Idle.Busy = total.Seconds() * float64(v.Microbatches) / float64(v.Stages)
	silent := v.seconds(v.costs, 0)
	ideal := v.seconds(slices.Repeat([]cost.Stage{total.Scale(1 / float64(v.virtual()))}, v.virtual()), 0)
	out.Idle.Inherent = ideal - out.Idle.Busy
	out.Idle.Imbalance = silent - ideal
	out.Idle.Messages = out.Seconds - silent
	return out
}
