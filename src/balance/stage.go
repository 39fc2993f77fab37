package balance

import (
	"math"
	"slices"

	"dynmo/src/partition"
)

// Stage is the data with which one stage takes part in diffusion: its own speed and memory, and its
// layers.
type Stage struct {
	Index      int     // in [0, Stages)
	Stages     int     // number of stages in the pipeline
	First      int     // index of Layers[0] in the chain
	Layers     []Load  // in the chain's order
	Slow       float64 // factor on seconds
	Fixed      float64 // seconds that belong to no layer
	Capacity   int64   // capacity in bytes; 0 for no limit
	FixedBytes int64   // bytes that belong to no layer
	InFlight   int     // largest number of microbatches in flight
	Between    int     // largest number of microbatches between I and W
	Recomputed int     // largest number of microbatches with recomputed values
}

// Load is the time and memory of a layer, or the sum over several layers.
type Load struct {
	Seconds    float64 // for one microbatch
	Static     int64   // bytes that do not depend on microbatches
	Activation int64   // bytes for each microbatch in flight
	Held       int64   // bytes for each microbatch between its I and its W
	Again      int64   // bytes of recomputed values for each microbatch
}

// plus returns the sum of two loads.
func (a Load) plus(l Load) Load {
	return Load{a.Seconds + l.Seconds, a.Static + l.Static, a.Activation + l.Activation, a.Held + l.Held, a.Again + l.Again}
}

// minus returns load a without load l, which is a part of a.
func (a Load) minus(l Load) Load {
	return Load{a.Seconds - l.Seconds, a.Static - l.Static, a.Activation - l.Activation, a.Held - l.Held, a.Again - l.Again}
}

// Stage returns the data of a stage if the chain is cut at cuts.
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

// stagesAt returns the data of every stage at these cuts.
func (p Problem) stagesAt(cuts partition.Partition) []Stage {
	stages := make([]Stage, p.Stages)
	for s := range stages {
		stages[s] = p.Stage(cuts, s)
	}
	return stages
}

// kinds returns the speed and memory of every stage, without layers.
func (p Problem) kinds() []Stage { return p.stagesAt(make(partition.Partition, p.Stages+1)) }

// floor returns the least bottleneck that fixed seconds and single layers allow: every stage takes
// its fixed seconds, and some stage must run the longest layer.
func floor(stages []Stage, longest float64) float64 {
	lo, best := 0.0, math.Inf(1)
	for s := range stages {
		lo, best = max(lo, stages[s].Fixed), min(best, stages[s].load(longest))
	}
	return max(lo, best)
}

// ideal returns the bottleneck if work could be divided at any point: the B for which Σ_s (B -
// fixed_s)/slow_s equals the work. With equal stages B is T/P.
func ideal(stages []Stage, work float64) float64 {
	speed := 0.0
	for s := range stages {
		work += stages[s].Fixed / stages[s].Slow
		speed += 1 / stages[s].Slow
	}
	return work / speed
}

// sum returns the sum over the stage's layers. They are added in chain order, so every rank gets
// the same bits.
func (s *Stage) sum() Load {
	sum := Load{}
	for _, l := range s.Layers {
		sum = sum.plus(l)
	}
	return sum
}

// load returns the seconds of a stage whose layers take `work` seconds on a stage of speed 1.
func (s *Stage) load(work float64) float64 { return float64(s.Slow*work) + s.Fixed }

// excess returns by how many bytes a stage exceeds its capacity. sum is the load of its layers.
func (s *Stage) excess(sum Load) int64 {
	if s.Capacity == 0 {
		return 0
	}
	bytes := sum.Static + int64(s.InFlight)*sum.Activation + int64(s.Between)*sum.Held + int64(s.Recomputed)*sum.Again + s.FixedBytes
	return max(0, bytes-s.Capacity)
}

// objective measures how good a set of stages is. Less is better: excess first, then worst, then
// squares.
type objective struct {
	excess  int64   // bytes over capacity, summed
	worst   float64 // largest load, seconds
	squares float64 // Σ load²
}

// with returns the objective of the set with one more stage.
func (a objective) with(load float64, excess int64) objective {
	return objective{a.excess + excess, max(a.worst, load), a.squares + float64(load*load)}
}

// less reports whether objective a is better than b.
func (a objective) less(b objective) bool {
	if a.excess != b.excess {
		return a.excess < b.excess
	}
	if a.worst != b.worst {
		return a.worst < b.worst
	}
	return a.squares < b.squares
}

// beats reports whether a re-cut from objective b to a is accepted. The largest load must not rise.
// Σ load² must fall by more than 1e-12 of itself, which exceeds rounding. So re-cutting stops
// whatever the order of the windows. If a has fewer bytes over capacity neither condition applies.
func (a objective) beats(b objective) bool {
	if a.excess != b.excess {
		return a.excess < b.excess
	}
	return a.worst <= b.worst && a.squares < b.squares-1e-12*b.squares
}

// improves reports whether the cuts of a justify the moves from the cuts of b. They do with fewer
// bytes over capacity, or with a smaller bottleneck and equal bytes.
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

// objectiveOf returns the objective of a set of stages.
func objectiveOf(stages []Stage) objective {
	all := objective{}
	for s := range stages {
		own := stages[s].objective()
		all = all.with(own.worst, own.excess)
	}
	return all
}

// deal assigns layers to neighbouring stages in order: counts[s] layers to stages[s].
func deal(stages []Stage, layers []Load, counts []int) {
	first := stages[0].First
	for s := range stages {
		stages[s].First, stages[s].Layers = first, slices.Clone(layers[:counts[s]])
		layers = layers[counts[s]:]
		first += counts[s]
	}
}
