package plan

import (
	"math"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// exact is a branch and bound over all active schedules (Giffler & Thompson 1960).
type exact struct {
	o     schedule.ListOptions
	best  float64
	nodes int
	bound float64
}

type node struct {
	next  [][3]int // by stage: F, I, W
	clock []float64
	f, i  [][]float64
	work  []float64 // left by stage
}

func (e *exact) search(n *node) {
	if e.nodes--; e.nodes < 0 || e.best <= e.bound {
		return
	}
	p, m := len(e.o.Costs), e.o.Microbatches
	type option struct {
		stage, op  int
		start, end float64
	}
	var all []option
	finish := math.Inf(1)
	var stage int
	done := true
	for s := range p {
		c := e.o.Costs[s]
		nx := n.next[s]
		lower := n.clock[s]
		left := float64(m-nx[0])*c.Forward + float64(m-nx[1])*c.Input + float64(m-nx[2])*c.Weight
		if left > 0 || nx[2] < m {
			done = false
		}
		tail := 0.0
		if nx[1] < m { // its last I, then the I before
			for j := range s {
				tail += e.o.Costs[j].Input
			}
			tail += e.o.Costs[0].Weight
			if s == 0 {
				tail = 0
			}
			if lower+left-float64(m-nx[2])*c.Weight+tail >= e.best-1e-9 {
				return
			}
		}
		if lower+left >= e.best-1e-9 {
			return
		}
		add := func(op int, ready, d float64) {
			o := option{s, op, max(ready, n.clock[s]), 0}
			o.end = o.start + d
			all = append(all, o)
			if o.end < finish {
				finish, stage = o.end, s
			}
		}
		if nx[0] < m && nx[0]-nx[2] < e.o.InFlight[s] {
			if s == 0 {
				add(0, 0, c.Forward)
			} else if n.next[s-1][0] > nx[0] {
				add(0, n.f[s-1][nx[0]], c.Forward)
			}
		}
		if nx[1] < nx[0] {
			if s == p-1 {
				add(1, n.f[s][nx[1]], c.Input)
			} else if n.next[s+1][1] > nx[1] {
				add(1, n.i[s+1][nx[1]], c.Input)
			}
		}
		if nx[2] < nx[1] {
			add(2, n.i[s][nx[2]], c.Weight)
		}
	}
	if done {
		e.best = 0
		for _, c := range n.clock {
			e.best = max(e.best, c)
		}
		panic("unreachable")
	}
	for _, o := range all {
		if o.stage != stage || o.start > finish || o.start == finish && o.end > finish && o.end-o.start > 0 {
			continue
		}
		k := n.next[stage][o.op]
		clock := n.clock[stage]
		n.next[stage][o.op]++
		n.clock[stage] = o.end
		switch o.op {
		case 0:
			n.f[stage][k] = o.end
		case 1:
			n.i[stage][k] = o.end
		}
		complete := true
		for s := range p {
			complete = complete && n.next[s][2] == m
		}
		if complete {
			worst := 0.0
			for _, c := range n.clock {
				worst = max(worst, c)
			}
			e.best = min(e.best, worst)
		} else {
			e.search(n)
		}
		n.next[stage][o.op]--
		n.clock[stage] = clock
	}
}

func TestSmall(t *testing.T) {
	sum, count, worst, unproved, over, tried := 0.0, 0, 0.0, 0, 0, 0
	for seed := range uint64(300) {
		rnd := random.Keyed(seed, 77)
		p, m := 2+rnd.IntN(3), 2+rnd.IntN(3)
		o := schedule.ListOptions{Microbatches: m}
		kind := rnd.IntN(3)
		for range p {
			draw := func() float64 {
				switch kind {
				case 0:
					return float64(1 + rnd.IntN(4))
				case 1:
					return []float64{0.1, 1}[rnd.IntN(2)]
				}
				return 0.5 + rnd.Float64()
			}
			o.Costs = append(o.Costs, cost.Stage{Forward: draw(), Input: draw(), Weight: draw()})
			o.InFlight = append(o.InFlight, 1+rnd.IntN(m))
		}
		_, auto := Auto(o, func(s schedule.Schedule) float64 { return sim.Makespan(s, o.Costs) })
		bound := sim.LowerBound(partition.Line(p), o.Costs, m, o.InFlight)
		best := auto
		if auto > bound*(1+1e-9) {
			e := exact{o: o, best: 1.3 * auto, nodes: 300000, bound: bound * (1 + 1e-9)}
			n := &node{next: make([][3]int, p), clock: make([]float64, p)}
			for range p {
				n.f, n.i = append(n.f, make([]float64, m)), append(n.i, make([]float64, m))
			}
			e.search(n)
			best = min(auto, e.best)
			tried++
			if e.nodes >= 0 && best > auto+1e-6 {
				t.Errorf("seed %d: %v > %v", seed, best, auto)
			}
			if e.nodes < 0 {
				unproved++
			}
		}
		r := auto / best
		sum, count, worst = sum+r, count+1, max(worst, r)
		if r > 1+1e-6 {
			over++
			t.Logf("seed %d p %d m %d kind %d: %v, optimum %v, %v", seed, p, m, kind, auto, best, r)
		}
	}
	t.Logf("mean %.5f worst %.4f, over %d, unproved %d, tried %d", sum/float64(count), worst, over, unproved, tried)
}
