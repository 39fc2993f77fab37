package place

import (
	"math"
	"math/bits"

	"dynmo/src/piece"
)

// mostMaps is how many maps exact tries at most.
const mostMaps = 1 << 12

// exact gives the replicas the copies that make the load of the fullest lowest, of all copies
// that the places allow; of equal ones the fewest. It returns false where there are too many
// cases.
func (p *Placer) exact(owners piece.Map, loads []float64) bool {
	if (p.Replicas-1)*len(owners) > bits.Len(mostMaps-1) {
		return false
	}
	p.prepare(len(owners))
	x := exactly{p: p, loads: loads, masks: make([]int, len(owners)), lowest: math.Inf(1)}
	for e, on := range owners {
		x.masks[e] = 1 << on[0]
		p.free[on[0]]--
	}
	x.search(0, 0)
	p.prepare(len(owners))
	for e, mask := range x.best {
		for r := range p.Replicas {
			if mask&(1<<r) != 0 {
				p.take(r, e, 0)
			}
		}
	}
	return true
}

// exactly is a search of all copies. A mask has a bit for each replica that holds an expert.
type exactly struct {
	p           *Placer
	loads       []float64
	masks, best []int
	lowest      float64
	copies      int // of best
}

// search tries all copies of the experts from one on.
func (x *exactly) search(expert, copies int) {
	if expert == len(x.masks) {
		if f := x.fullest(); f < x.lowest*(1-1e-9) || f <= x.lowest*(1+1e-9) && copies < x.copies {
			x.best, x.lowest, x.copies = append(x.best[:0], x.masks...), f, copies
		}
		return
	}
	owner := x.masks[expert]
	for mask := range 1 << x.p.Replicas {
		if mask&owner == 0 {
			continue
		}
		added, fits := mask&^owner, true
		for rest := added; rest != 0; rest &= rest - 1 {
			r := bits.TrailingZeros(uint(rest))
			x.p.free[r]--
			fits = fits && x.p.free[r] >= 0
		}
		if fits {
			x.masks[expert] = mask
			x.search(expert+1, copies+bits.OnesCount(uint(added)))
		}
		for rest := added; rest != 0; rest &= rest - 1 {
			x.p.free[bits.TrailingZeros(uint(rest))]++
		}
	}
	x.masks[expert] = owner
}

// fullest returns the load of the fullest replica where rows are dealt in any parts: by the
// duality of flows and cuts
//
//	max over sets A of replicas of  Σ load_e of the experts that A's replicas alone hold / |A|.
func (x *exactly) fullest() float64 {
	most := 0.0
	for set := 1; set < 1<<x.p.Replicas; set++ {
		sum := 0.0
		for e, mask := range x.masks {
			if mask&^set == 0 {
				sum += x.loads[e]
			}
		}
		most = max(most, sum/float64(bits.OnesCount(uint(set))))
	}
	return most
}
