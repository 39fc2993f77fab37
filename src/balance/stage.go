package balance

import (
	"math"
	"slices"

	"dynmo/src/partition"
)

// Stage is everything that one stage knows when it takes part in diffusion: its own speed and
// memory, and its layers.
type Stage struct {
	Index      int     // in [0, Stages)
	Stages     int     // of the pipeline
	First      int     // index of Layers[0] in the chain
	Layers     []Load  // in the chain's order
	Slow       float64 // factor on seconds
	Fixed      float64 // seconds no layer accounts for
	Capacity   int64   // bytes it can hold; 0 for no limit
	FixedBytes int64   // bytes no layer accounts for
	InFlight   int     // most microbatches in flight
	Between    int     // most microbatches between their two backwards
	Recomputed int     // most microbatches with what layers compute again
}

// Load is a layer as others need to know it, or the sum of several.
type Load struct {
	Seconds    float64 // for one microbatch
	Static     int64   // bytes whatever microbatches do
	Activation int64   // bytes for each microbatch in flight
	Held       int64   // bytes for each microbatch between its two backwards
	Again      int64   // bytes for each microbatch with what the layer computes again
}

// plus returns the load of a and l together.
func (a Load) plus(l Load) Load {
	return Load{a.Seconds + l.Seconds, a.Static + l.Static, a.Activation + l.Activation, a.Held + l.Held, a.Again + l.Again}
}

// minus returns the load of those layers of a that are not among l's.
func (a Load) minus(l Load) Load {
	return Load{a.Seconds - l.Seconds, a.Static - l.Static, a.Activation - l.Activation, a.Held - l.Held, a.Again - l.Again}
}

// Stage returns what a stage knows when the chain is cut at cuts.
func (p Problem) Stage(cuts partition.Partition, stage int) Stage {
	b, e := cuts.Range(stage)
	st := Stage{
		Index: stage, Stages: p.Stages, First: b, Layers: make([]Load, 0, e-b),
		Slow: entry(p.Slow, stage, 1), Fixed: entry(p.Fixed, stage, 0),
		Capacity: entry(p.Capacity, stage, 0), FixedBytes: entry(p.FixedBytes, stage, 0),
		InFlight: entry(p.InFlight, stage, 1), Between: entry(p.Between, stage, 1), Recomputed: entry(p.Recomputed, stage, 1),
	}
	for l := b; l < e; l++ {
		st.Layers = append(st.Layers, Load{
			p.Seconds[l], entry(p.StaticBytes, l, 0), entry(p.ActivationBytes, l, 0), entry(p.HeldBytes, l, 0), entry(p.AgainBytes, l, 0),
		})
	}
	return st
}

// stagesAt returns what every stage knows at these cuts.
func (p Problem) stagesAt(cuts partition.Partition) []Stage {
	stages := make([]Stage, p.Stages)
	for s := range stages {
		stages[s] = p.Stage(cuts, s)
	}
	return stages
}

// kinds returns what every stage is like, without layers.
func (p Problem) kinds() []Stage { return p.stagesAt(make(partition.Partition, p.Stages+1)) }

// floor returns the least bottleneck that fixed seconds and single layers allow:
// every stage has its fixed seconds, the longest layer must run somewhere.
func floor(stages []Stage, longest float64) float64 {
	lo, best := 0.0, math.Inf(1)
	for s := range stages {
		lo, best = max(lo, stages[s].Fixed), min(best, stages[s].load(longest))
	}
	return max(lo, best)
}

// ideal returns the bottleneck of work that could be divided at will: the B at
// which Σ_s (B - fixed_s)/slow_s is all the work. With equal stages it is T/P.
func ideal(stages []Stage, work float64) float64 {
	speed := 0.0
	for s := range stages {
		work += stages[s].Fixed / stages[s].Slow
		speed += 1 / stages[s].Slow
	}
	return work / speed
}

// sum returns the stage's layers added in order, so that every rank gets the
// same bits.
func (s *Stage) sum() Load {
	sum := Load{}
	for _, l := range s.Layers {
		sum = sum.plus(l)
	}
	return sum
}

// load returns the seconds of a stage whose layers add up to work.
func (s *Stage) load(work float64) float64 { return float64(s.Slow*work) + s.Fixed }

// excess returns the bytes by which a stage is over its capacity with layers
// that add up to sum.
func (s *Stage) excess(sum Load) int64 {
	if s.Capacity == 0 {
		return 0
	}
	bytes := sum.Static + int64(s.InFlight)*sum.Activation + int64(s.Between)*sum.Held + int64(s.Recomputed)*sum.Again + s.FixedBytes
	return max(0, bytes-s.Capacity)
}

// objective says how good a set of stages is: less is better, by excess, then
// by worst, then by squares.
type objective struct {
	excess  int64   // bytes over capacity, summed
	worst   float64 // largest load, seconds
	squares float64 // Σ load²
}

// with returns the objective of a set that gains one stage.
func (a objective) with(load float64, excess int64) objective {
	return objective{a.excess + excess, max(a.worst, load), a.squares + float64(load*load)}
}

// less orders objectives.
func (a objective) less(b objective) bool {
	if a.excess != b.excess {
		return a.excess < b.excess
	}
	if a.worst != b.worst {
		return a.worst < b.worst
	}
	return a.squares < b.squares
}

// beats reports whether stages may be re-cut from objective b to a. Σ load²
// must fall by more than rounding, 1e-12 of it, so that re-cutting stops
// whatever the order of the windows; the largest load must not rise. Only
// fewer bytes over capacity excuse either.
func (a objective) beats(b objective) bool {
	if a.excess != b.excess {
		return a.excess < b.excess
	}
	return a.worst <= b.worst && a.squares < b.squares-1e-12*b.squares
}

// improves reports whether the cuts of a are worth their moves from those of b:
// fewer bytes over capacity, or a smaller bottleneck with as many.
func (a objective) improves(b objective) bool {
	return a.excess < b.excess || a.excess == b.excess && a.worst < b.worst
}

// objective returns the objective of one stage.
func (s *Stage) objective() objective {
	sum := s.sum()
	return objective{}.with(s.load(sum.Seconds), s.excess(sum))
}

// layersOf returns the layers of neighbouring stages.
func layersOf(stages []Stage) []Load {
	last := stages[len(stages)-1]
	layers := make([]Load, 0, last.First+len(last.Layers)-stages[0].First)
	for s := range stages {
		layers = append(layers, stages[s].Layers...)
	}
	return layers
}

// objectiveOf returns the objective of stages together.
func objectiveOf(stages []Stage) objective {
	all := objective{}
	for s := range stages {
		own := stages[s].objective()
		all = all.with(own.worst, own.excess)
	}
	return all
}

// deal gives the layers of neighbouring stages out again, counts[s] to the
// s-th of them, in order.
func deal(stages []Stage, layers []Load, counts []int) {
	first := stages[0].First
	for s := range stages {
		stages[s].First, stages[s].Layers = first, slices.Clone(layers[:counts[s]])
		layers = layers[counts[s]:]
		first += counts[s]
	}
}
