package place

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/piece"
)

// Placer decides which replicas hold which experts of a layer: a piece.Map. Loads are the expected rows
// of each expert. Replicas and Room must be set. A Placer reuses its memory from call to call; its
// answers depend on the arguments alone.
type Placer struct {
	Replicas int
	Room     int   // experts that a replica has room for (see Places)
	Node     []int // by replica: its node; nil: all are on one

	dealer  Dealer
	rows    []int
	order   []int     // experts, the largest load first
	loads   []float64 // by replica: the sum of its shares
	free    []int     // by replica: places that are left
	shares  [][]share // by replica
	holds   []bool    // by expert and replica: whether the replica holds the expert
	counts  []int     // by expert: the number of replicas that hold it
	perCopy []float64 // by expert: its load divided by counts
}

// share is a part of an expert's load that one replica works on.
type share struct {
	expert int
	load   float64
}

// Bound returns a lower bound on the load of the fullest replica, for every map of these loads. It is
// the larger of the mean load and the least T at which the shares of all experts have places:
//
//	Σ_e max(1, ⌈load_e / T⌉) <= Replicas · Room
//
// An expert with load_e > T needs ⌈load_e / T⌉ replicas.
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

// Place returns a map for loads by expert. It first gives every expert an owner, the largest load
// first: the emptiest replica that has not got its even share of the experts (Graham 1969, longest
// processing time first). Then it adds copies (see Copy). If present is not nil, replicas are numbered
// so that many experts keep their owners in present (see renumber).
func (p *Placer) Place(loads []float64, present piece.Map) piece.Map {
	p.prepare(len(loads))
	p.order = p.order[:0]
	for e := range loads {
		p.order = append(p.order, e)
	}
	slices.SortStableFunc(p.order, func(a, b int) int { return cmp.Compare(loads[b], loads[a]) })
	owners, spare := piece.Even(len(loads), p.Replicas), p.Room-Places(len(loads), p.Replicas, 0)
	for _, e := range p.order {
		best := -1
		for r, load := range p.loads {
			if p.free[r] > spare && (best < 0 || load < p.loads[best] || load == p.loads[best] && p.free[r] > p.free[best]) {
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

// renumber gives the replicas of owners other numbers, so that many experts keep the owner that they
// have in present. It is greedy: it first takes the pair of an old and a new number that keeps the most
// experts.
func renumber(owners, present piece.Map, replicas int) {
	common := make([]int, replicas*replicas) // by replica in owners and replica in present: experts that both own
	for e, on := range owners {
		common[on[0]*replicas+present[e][0]]++
	}
	pairs := make([]int, 0, len(owners)+replicas)
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
	for _, on := range owners {
		on[0] = number[on[0]]
	}
}

// prepare takes all experts from all replicas.
func (p *Placer) prepare(experts int) {
	p.loads = slices.Grow(p.loads[:0], p.Replicas)[:p.Replicas]
	p.free = slices.Grow(p.free[:0], p.Replicas)[:p.Replicas]
	p.shares = slices.Grow(p.shares[:0], p.Replicas)[:p.Replicas]
	p.holds = slices.Grow(p.holds[:0], p.Replicas*experts)[:p.Replicas*experts]
	clear(p.loads)
	clear(p.holds)
	for r := range p.free {
		p.free[r], p.shares[r] = p.Room, p.shares[r][:0]
	}
}

// targets are the targets that Copy tries, one after the other, divided by the bound.
var targets = []float64{1.04, 1.15}

// Copy returns a map with the owners of m and new copies. Small cases try all copies (see exact).
//
// Other cases try several targets for the load of the fullest replica, and return the best map. For
// each target the fullest replica gives rows of its largest expert to the emptiest replica with a free
// place, which takes a copy (see export). This goes on until no replica exceeds the target. Then the
// places that are still free take copies too (see fill): loads vary with each microbatch, and more
// copies let Deal even them out.
func (p *Placer) Copy(m piece.Map, loads []float64) piece.Map {
	owners := m.Owned()
	bound := p.Bound(loads)
	if p.exact(owners, loads) {
		p.fill(loads)
		return p.result(owners)
	}
	best, fullest := owners, p.Fullest(owners, loads, 0)
	for _, factor := range targets {
		p.export(owners, loads, bound*factor)
		p.fill(loads)
		m := p.result(owners)
		if f := p.Fullest(m, loads, 0); f < fullest*(1-1e-6) {
			best, fullest = m, f
		}
		if fullest <= bound*factor {
			break
		}
	}
	return best
}

// export moves load from the fullest replica to new copies until no replica has more than target, or no
// replica can take a copy.
func (p *Placer) export(owners piece.Map, loads []float64, target float64) {
	p.prepare(len(loads))
	for e, on := range owners {
		p.take(on[0], e, loads[e])
	}
	for {
		from, most := 0, -1.0
		for replica, load := range p.loads {
			if load > most {
				from, most = replica, load
			}
		}
		if most <= target*(1+1e-9) {
			return
		}
		s := p.largest(from)
		to := p.taker(s.expert, owners[s.expert][0], target)
		if to < 0 {
			return
		}
		moved := min(s.load, p.loads[from]-target, target-p.loads[to])
		s.load -= moved
		p.loads[from] -= moved
		p.take(to, s.expert, moved)
	}
}

// take puts a share of an expert on a replica.
func (p *Placer) take(replica, expert int, load float64) {
	p.loads[replica] += load
	p.free[replica]--
	p.shares[replica] = append(p.shares[replica], share{expert, load})
	p.holds[expert*p.Replicas+replica] = true
}

// largest returns the largest share on a replica.
func (p *Placer) largest(replica int) *share {
	list, best := p.shares[replica], 0
	for i := range list {
		if list[i].load > list[best].load {
			best = i
		}
	}
	return &list[best]
}

// sameNode is how much fuller a replica on the owner's node may be and still be taken first, as a share
// of the target.
const sameNode = 0.05

// taker returns the replica that takes a copy of an expert: the emptiest one below the target that has a
// free place and does not hold the expert. It prefers replicas on the owner's node, whose load counts
// as lower by sameNode. It returns -1 if no replica can take a copy.
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

// fill gives each free place a copy of an expert that its replica does not hold: the expert with the
// most load per replica that holds it.
func (p *Placer) fill(loads []float64) {
	p.perCopy = append(p.perCopy[:0], loads...)
	p.counts = slices.Grow(p.counts[:0], len(loads))[:len(loads)]
	clear(p.counts)
	for _, list := range p.shares {
		for _, s := range list {
			p.counts[s.expert]++
		}
	}
	for e, n := range p.counts {
		p.perCopy[e] /= float64(n)
	}
	for r := range p.shares {
		for p.free[r] > 0 && len(p.shares[r]) < len(loads) {
			best, most := 0, -1.0
			for e, load := range p.perCopy {
				if load > most && !p.holds[e*p.Replicas+r] {
					best, most = e, load
				}
			}
			p.take(r, best, 0)
			p.counts[best]++
			p.perCopy[best] = loads[best] / float64(p.counts[best])
		}
	}
}

// result returns the map of all shares: each expert's owner, then its copies in ascending order.
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
	for r, list := range p.shares {
		for _, s := range list {
			if r != m[s.expert][0] {
				m[s.expert] = append(m[s.expert], r)
			}
		}
	}
	return m
}

// rowsPerReplica is the mean number of rows of a replica in Fullest, which scales loads to whole rows.
// It is large, so that rounding hardly changes the result.
const rowsPerReplica = 1 << 16

// Fullest returns the load of the fullest replica of a map, if Deal deals the rows. A caller that only
// asks whether this load is at most `enough` saves time: Fullest stops once it finds a deal at which
// the load is at most enough, and returns the load of this deal. With enough = 0 it
// deals as long as Deal does.
func (p *Placer) Fullest(m piece.Map, loads []float64, enough float64) float64 {
	sum := 0.0
	for _, x := range loads {
		sum += x
	}
	if sum == 0 {
		return 0
	}
	scale := rowsPerReplica * float64(p.Replicas) / sum
	p.rows = p.rows[:0]
	for _, x := range loads {
		p.rows = append(p.rows, int(x*scale+0.5))
	}
	p.dealer.deal(m, p.rows, 1, p.Replicas, int64(enough*scale)-1)
	return float64(slices.Max(p.dealer.Loads)) / scale
}
