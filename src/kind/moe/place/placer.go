package place

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/piece"
)

// Placer finds maps for loads: rows by expert, as they are expected. The zero value is not
// ready: Replicas and Room are needed. It keeps memory from one call to the next. Its answers
// depend on the arguments alone.
type Placer struct {
	Replicas int
	Room     int   // experts that a replica has room for (see Places)
	Node     []int // by replica: its node; nil: all are on one

	dealer Dealer
	rows   []int
	order  []int
	loads  []float64 // by replica
	free   []int     // by replica: places that are left
	on     [][]share // by replica
	holds  []bool    // by expert and replica
	counts []int     // by expert: holders
	each   []float64 // by expert: load of a holder, on the mean
}

// share is what a replica works on of an expert.
type share struct {
	expert int
	load   float64
}

// Bound returns what the fullest replica has at least, in any map of the loads: the mean load, and the
// least T that leaves a place for every piece,
//
//	Σ_e max(1, ⌈load_e / T⌉) <= Replicas · Room.
func (p *Placer) Bound(loads []float64) float64 {
	sum, most := 0.0, 0.0
	for _, x := range loads {
		sum, most = sum+x, max(most, x)
	}
	fits := func(t float64) bool {
		n := 0.0
		for _, x := range loads {
			if n++; x > t {
				n += math.Ceil(x/t) - 1
			}
		}
		return n <= float64(p.Replicas*p.Room)
	}
	low, high := sum/float64(p.Replicas), max(most, sum/float64(p.Replicas))
	if low == 0 || fits(low) {
		return low
	}
	for high-low > 1e-4*high {
		if middle := (low + high) / 2; fits(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	return low
}

// Place returns a map for loads by expert: owners first, the largest load first, each on the
// emptiest replica (Graham 1969, longest processing time first), an even share of the experts
// on each; then copies (see Copy). Replicas are numbered so that owners stay where they are in
// present as far as a greedy choice finds; nil: anyhow.
func (p *Placer) Place(loads []float64, present piece.Map) piece.Map {
	p.prepare(len(loads))
	p.order = p.order[:0]
	for e := range loads {
		p.order = append(p.order, e)
	}
	slices.SortStableFunc(p.order, func(a, b int) int { return cmp.Compare(loads[b], loads[a]) })
	owners, most := piece.Even(len(loads), p.Replicas), p.Room-Places(len(loads), p.Replicas, 0)
	for _, e := range p.order {
		best := -1
		for r, load := range p.loads {
			if p.free[r] > most && (best < 0 || load < p.loads[best] || load == p.loads[best] && p.free[r] > p.free[best]) {
				best = r
			}
		}
		owners[e][0] = best
		p.loads[best] += loads[e]
		p.free[best]--
	}
	if present != nil {
		renumber(owners, present, p.Replicas)
	}
	return p.Copy(owners, loads)
}

// renumber gives the replicas of owners other numbers, so that many experts are owned by the
// replica that owns them in present: the pair of replicas with the most experts in common
// first.
func renumber(m, present piece.Map, replicas int) {
	common := make([]int, replicas*replicas)
	for e, on := range m {
		common[on[0]*replicas+present[e][0]]++
	}
	pairs := make([]int, 0, len(m)+replicas)
	for pair, n := range common {
		if n > 0 {
			pairs = append(pairs, pair)
		}
	}
	slices.SortStableFunc(pairs, func(a, b int) int { return cmp.Compare(common[b], common[a]) })
	number, taken := slices.Repeat([]int{-1}, replicas), make([]bool, replicas)
	for _, pair := range pairs {
		if from, to := pair/replicas, pair%replicas; number[from] < 0 && !taken[to] {
			number[from], taken[to] = to, true
		}
	}
	for from := range number {
		if number[from] < 0 {
			number[from] = slices.Index(taken, false)
			taken[number[from]] = true
		}
	}
	for _, on := range m {
		on[0] = number[on[0]]
	}
}

// prepare empties all replicas.
func (p *Placer) prepare(experts int) {
	p.loads = slices.Grow(p.loads[:0], p.Replicas)[:p.Replicas]
	p.free = slices.Grow(p.free[:0], p.Replicas)[:p.Replicas]
	p.on = slices.Grow(p.on[:0], p.Replicas)[:p.Replicas]
	p.holds = slices.Grow(p.holds[:0], p.Replicas*experts)[:p.Replicas*experts]
	clear(p.loads)
	clear(p.holds)
	for r := range p.free {
		p.free[r], p.on[r] = p.Room, p.on[r][:0]
	}
}

// targets are how many times the bound the fullest replica may have, as Copy tries one after
// the other.
var targets = []float64{1.04, 1.15}

// Copy returns the map with the owners of m and other copies. It works down to a target for the
// fullest replica. The fullest replica gives rows of its largest expert to the emptiest replica
// with a free place, which takes a copy. This goes on until no replica exceeds the target. Loads vary in
// each microbatch, so rows are dealt anew there. Each free place therefore takes a copy of an
// expert whose holders have the most rows of it. Targets grow from the bound; the best map is
// returned. In small cases all copies are tried (see exact).
func (p *Placer) Copy(m piece.Map, loads []float64) piece.Map {
	owners := m.Owned()
	bound := p.Bound(loads)
	if p.exact(owners, loads) {
		p.fill(loads)
		return p.result(owners)
	}
	best, fullest := owners, p.Fullest(owners, loads, 0)
	for _, t := range targets {
		p.export(owners, loads, bound*t)
		p.fill(loads)
		m := p.result(owners)
		if f := p.Fullest(m, loads, 0); f < fullest*(1-1e-6) {
			best, fullest = m, f
		}
		if fullest <= bound*t {
			break
		}
	}
	return best
}

// export lets replicas take copies until none has more than target, or none helps.
func (p *Placer) export(owners piece.Map, loads []float64, target float64) {
	p.prepare(len(loads))
	for e, on := range owners {
		p.take(on[0], e, loads[e])
	}
	for {
		r, most := 0, -1.0
		for k, load := range p.loads {
			if load > most {
				r, most = k, load
			}
		}
		if most <= target*(1+1e-9) {
			return
		}
		s := p.largest(r)
		q := p.taker(s.expert, owners[s.expert][0], target)
		if q < 0 {
			return
		}
		given := min(s.load, p.loads[r]-target, target-p.loads[q])
		s.load -= given
		p.loads[r] -= given
		p.take(q, s.expert, given)
	}
}

// take puts a share of an expert on a replica.
func (p *Placer) take(replica, expert int, load float64) {
	p.loads[replica] += load
	p.free[replica]--
	p.on[replica] = append(p.on[replica], share{expert, load})
	p.holds[expert*p.Replicas+replica] = true
}

// largest returns the largest share on a replica.
func (p *Placer) largest(replica int) *share {
	list, best := p.on[replica], 0
	for i := range list {
		if list[i].load > list[best].load {
			best = i
		}
	}
	return &list[best]
}

// sameNode is the share of the target that a copy gives up for a place on its owner's node.
const sameNode = 0.05

// taker returns the emptiest replica below the target that has a free place and does not hold
// the expert yet, -1 if there is none. A replica on the owner's node is taken before others that
// are only a little emptier.
func (p *Placer) taker(expert, owner int, target float64) int {
	best, least, below, holds := -1, math.Inf(1), target*(1-1e-9), p.holds[expert*p.Replicas:]
	for r, load := range p.loads {
		if load >= below || p.free[r] == 0 || holds[r] {
			continue
		}
		if p.Node != nil && p.Node[r] == p.Node[owner] {
			load -= sameNode * target
		}
		if load < least {
			best, least = r, load
		}
	}
	return best
}

// fill gives each free place a copy of one expert that its replica does not hold: the one whose
// holders have the most rows of it, on the mean.
func (p *Placer) fill(loads []float64) {
	p.each = append(p.each[:0], loads...)
	p.counts = slices.Grow(p.counts[:0], len(loads))[:len(loads)]
	clear(p.counts)
	for _, list := range p.on {
		for _, s := range list {
			p.counts[s.expert]++
		}
	}
	for e, n := range p.counts {
		p.each[e] /= float64(n)
	}
	for r := range p.on {
		for p.free[r] > 0 && len(p.on[r]) < len(loads) {
			best, most := 0, -1.0
			for e, load := range p.each {
				if load > most && !p.holds[e*p.Replicas+r] {
					best, most = e, load
				}
			}
			p.take(r, best, 0)
			p.counts[best]++
			p.each[best] = loads[best] / float64(p.counts[best])
		}
	}
}

// result returns the map of the shares.
func (p *Placer) result(owners piece.Map) piece.Map {
	m, n, at := make(piece.Map, len(owners)), 0, 0
	for _, count := range p.counts {
		n += count
	}
	all := make([]int, n)
	for e, on := range owners {
		all[at] = on[0]
		m[e] = all[at : at+1 : at+p.counts[e]]
		at += p.counts[e]
	}
	for r, list := range p.on {
		for _, s := range list {
			if r != m[s.expert][0] {
				m[s.expert] = append(m[s.expert], r)
			}
		}
	}
	return m
}

// unit is how many parts the mean load of a replica has where Fullest deals loads.
const unit = 1 << 16

// Fullest returns the load of the fullest replica in a map, with rows dealt as well as Deal
// does. Fullest saves time where this load is at most enough: it then returns any load that is
// at most enough and no lower.
func (p *Placer) Fullest(m piece.Map, loads []float64, enough float64) float64 {
	sum := 0.0
	for _, x := range loads {
		sum += x
	}
	if sum == 0 {
		return 0
	}
	scale := unit * float64(p.Replicas) / sum
	p.rows = p.rows[:0]
	for _, x := range loads {
		p.rows = append(p.rows, int(x*scale+0.5))
	}
	p.dealer.deal(m, p.rows, 1, p.Replicas, int64(enough*scale)-1)
	return float64(slices.Max(p.dealer.Loads)) / scale
}
