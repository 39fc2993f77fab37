package balance

import (
	"fmt"
	"slices"

	"dynmo/src/partition"
)

// Scatter is an assignment of layers to stages that need not be contiguous. It is the result of the
// paper's diffusion. No pipeline can run it in order.
type Scatter struct {
	Owner        []int     // by layer: its stage
	StageSeconds []float64 // by stage: slow_s·Σt + fixed_s
	Bottleneck   float64   // the largest of them, seconds
	Transfers    int       // layers sent; a layer that is sent twice counts twice
	Sweeps       int       // sweeps over all stages; the last sweep has no transfer unless the limit of sweeps was reached
	Contiguous   bool      // whether owners never fall along the chain
}

// DiffusionPaper is the paper's Algorithm 3 (section C.3). In every sweep each overloaded stage
// offers its shortest layer to the least loaded stage. That stage takes the layer if the variance
// of the loads falls and its memory allows it. The result is a baseline for reports. No layer moves
// by it.
//
// Departs: the pseudo-code computes loads, variance, status and target once for a sweep and never
// refreshes them; here they are always up to date. The algorithm ends after a sweep without a
// change, or after the given number of sweeps.
func DiffusionPaper(p Problem, present partition.Partition, sweeps int) (Scatter, error) {
	if err := p.Check(); err != nil {
		return Scatter{}, err
	}
	if err := present.Check(p.Layers(), p.Stages, false); err != nil {
		return Scatter{}, fmt.Errorf("present cuts: %w", err)
	}
	r := Scatter{Owner: make([]int, p.Layers())}
	for l := range r.Owner {
		r.Owner[l] = present.Stage(l)
	}
	loads, _ := p.scattered(r.Owner)
	for moved := true; moved && r.Sweeps < sweeps; r.Sweeps++ {
		moved = false
		for src := range p.Stages {
			mean, spread := variance(loads)
			layer := p.shortest(r.Owner, src)
			if loads[src] <= mean || layer < 0 {
				continue
			}
			dst := slices.Index(loads, slices.Min(loads))
			r.Owner[layer] = dst
			newLoads, newBytes := p.scattered(r.Owner)
			limit := entry(p.Capacity, dst, 0)
			if _, s := variance(newLoads); s >= spread || limit > 0 && newBytes[dst] > limit {
				r.Owner[layer] = src
				continue
			}
			loads, moved = newLoads, true
			r.Transfers++
		}
	}
	r.StageSeconds, r.Bottleneck = loads, slices.Max(loads)
	r.Contiguous = slices.IsSorted(r.Owner)
	return r, nil
}

// scattered returns the seconds and bytes of every stage under an assignment.
func (p Problem) scattered(owner []int) (loads []float64, bytes []int64) {
	loads, bytes = make([]float64, p.Stages), make([]int64, p.Stages)
	for l, s := range owner {
		loads[s] += p.Seconds[l]
		bytes[s] += entry(p.StaticBytes, l, 0) + int64(entry(p.InFlight, s, 1))*entry(p.ActivationBytes, l, 0) +
			int64(entry(p.Between, s, 1))*entry(p.HeldBytes, l, 0) + int64(entry(p.Recomputed, s, 1))*entry(p.AgainBytes, l, 0)
	}
	for s := range loads {
		loads[s] = float64(entry(p.Slow, s, 1)*loads[s]) + entry(p.Fixed, s, 0)
		bytes[s] += entry(p.FixedBytes, s, 0)
	}
	return loads, bytes
}

// shortest returns the layer of a stage with the shortest time, the first of equal ones, or -1 if
// the stage has none.
func (p Problem) shortest(owner []int, stage int) int {
	best := -1
	for l, s := range owner {
		if s == stage && (best < 0 || p.Seconds[l] < p.Seconds[best]) {
			best = l
		}
	}
	return best
}

// variance returns the mean of loads and their mean squared distance from it.
func variance(loads []float64) (mean, spread float64) {
	for _, x := range loads {
		mean += x / float64(len(loads))
	}
	for _, x := range loads {
		spread += (x - mean) * (x - mean) / float64(len(loads))
	}
	return mean, spread
}
