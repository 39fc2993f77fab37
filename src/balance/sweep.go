package balance

import (
	"math"
	"slices"

	"dynmo/src/partition"
)

// sweeper is the state of phase 2 of diffusion. A sweep is a message of a few numbers that passes
// along the line of stages, from neighbour to neighbour. Each stage updates the message with the
// layers that it has at present and sends it on. Neither layers nor their numbers move.
type sweeper struct {
	*participant
	targets []float64 // targets[k]: place in the chain's work where stage k should begin
	layers  int       // number of layers in the chain
	sweeps  int
	upTo    [][]Load // upTo[s][i]: sum of the chain before layer i of the participant's stage s; the last entry includes all its layers
	ahead   Load     // sum of the chain before the last layer of the previous participant
}

// sweep is phase 2. It searches for the smallest bottleneck. Of the cuts with this bottleneck it
// returns those nearest the targets of phase 1. It returns nil if no cuts fit into every stage's
// memory. Collective.
//
// Like Partition it bisects the bottleneck. Two sweeps try a bound. A sweep from the left finds the
// farthest layer at which each stage can begin. A sweep from the right lets each stage begin near
// its target, within the bound, its memory and the result of the first sweep. A cut leaves its
// target only along a run of stages that would otherwise exceed the bound. If every layer fits on
// every stage within the bound, sweep finds the smallest possible bottleneck. That is so without
// memory limits on stages of one speed. In other cases no remaining layer may fit on a stage,
// because the second sweep looks only one stage ahead.
func (g *participant) sweep(targets []float64, d *Descent) (partition.Partition, error) {
	w := sweeper{participant: g, targets: targets}
	chain, longest, err := w.count()
	if err != nil {
		return nil, err
	}
	var best partition.Partition
	try := func(bound float64) (found bool, at float64) {
		var cuts partition.Partition
		if cuts, at, err = w.try(bound); cuts != nil {
			best = cuts
		}
		if err != nil {
			at = math.Inf(1) // no bound remains to be tried
		}
		return cuts != nil, at
	}
	if found, at := try(math.Inf(1)); found {
		least := max(floor(g.kinds, longest), ideal(g.kinds, chain.Seconds))
		bisect(try, least, at, least)
	}
	d.Sweeps = w.sweeps
	return best, err
}

// count computes upTo. It returns the load of the whole chain and the seconds of its longest layer.
// Collective.
func (w *sweeper) count() (chain Load, longest float64, err error) {
	err = w.relay(encodeLayers(make([]Load, 2)), true, func(m []float64) []float64 {
		known := decodeLayers(m)
		w.ahead, chain = known[0], known[1]
		ahead := chain
		for s := range w.stages {
			upTo := []Load{chain}
			for _, l := range w.stages[s].Layers {
				ahead, chain, longest = chain, chain.plus(l), max(longest, l.Seconds)
				upTo = append(upTo, chain)
			}
			w.upTo = append(w.upTo, upTo)
		}
		return encodeLayers([]Load{ahead, chain})
	})
	if err != nil {
		return chain, longest, err
	}
	last := &w.stages[len(w.stages)-1]
	all := []float64{chain.Seconds, longest, float64(last.First + len(last.Layers))} // only the last participant knows the sums of the whole chain
	err = w.link.Max(all)
	chain.Seconds, longest, w.layers = all[0], all[1], int(all[2])
	return chain, longest, err
}

// try sweeps for cuts whose stages all stay within bound, and returns the cuts and their
// bottleneck. Without such cuts it returns nil, and the smallest bound at which a sweep would give
// another answer. That bound is infinite if only memory prevents the cuts. Collective.
func (w *sweeper) try(bound float64) (cuts partition.Partition, at float64, err error) {
	begins, next, err := w.farthest(bound)
	if err != nil || begins == nil {
		return nil, next, err
	}
	return w.nearest(bound, begins, next)
}

// keeps returns the seconds of stage k with the layers between two places of the chain. ok reports
// whether the seconds stay within bound and the layers fit into the stage's memory. If only the
// bound is too small, next is lowered to those seconds.
func (w *sweeper) keeps(k int, from, to Load, bound float64, next *float64) (seconds float64, ok bool) {
	sum := to.minus(from)
	seconds = w.kinds[k].load(sum.Seconds)
	if w.kinds[k].excess(sum) > 0 {
		return seconds, false
	}
	if seconds > bound {
		*next = min(*next, seconds)
		return seconds, false
	}
	return seconds, true
}

// farthest is the sweep from the left, in which each stage takes as many layers as bound and memory
// allow. It returns the farthest layer at which each stage can begin. It returns nil if layers are
// left over or a stage would get none. The message has three parts: the current stage, the sum of
// the chain before it, and the smallest bound at which a stage could take one more layer.
// Collective.
func (w *sweeper) farthest(bound float64) (begins []float64, next float64, err error) {
	w.sweeps++
	stages := w.all()
	begins = slices.Repeat([]float64{math.Inf(-1)}, stages+2) // the last entry is -next
	begins[0] = 0
	err = w.relay(append([]float64{0, math.Inf(1)}, encodeLayers([]Load{{}})...), true, func(m []float64) []float64 {
		k, next, begin := int(m[0]), m[1], decodeLayers(m[2:])[0]
		for s := range w.stages {
			for i := 0; i < len(w.stages[s].Layers) && k < stages; {
				if _, ok := w.keeps(k, begin, w.upTo[s][i+1], bound, &next); ok {
					i++
					continue
				}
				k, begin = k+1, w.upTo[s][i]
				begins[k] = float64(w.stages[s].First + i)
			}
		}
		if w.first()+len(w.stages) == stages { // at the end of the chain: stages after k begin there at the latest
			for behind := k + 1; behind <= stages; behind++ {
				begins[behind] = float64(w.layers)
			}
		}
		begins[stages+1] = -next
		return append([]float64{float64(k), next}, encodeLayers([]Load{begin})...)
	})
	if err == nil {
		err = w.link.Max(begins)
	}
	next = -begins[stages+1]
	for k := range stages {
		if begins[k] < float64(k) {
			return nil, next, err
		}
	}
	if begins[stages] < float64(w.layers) {
		return nil, next, err
	}
	return begins, next, err
}

// nearest is the sweep from the right. Stage k begins at the layer nearest its target for which it
// respects bound and memory. That layer is at least k and at most begins[k], and the stage gets at
// least one layer. One more layer must fit on the stage before. Of two equally near layers nearest
// takes the earlier. Its results are those of try. Message: see placing. Collective.
func (w *sweeper) nearest(bound float64, begins []float64, next float64) (partition.Partition, float64, error) {
	w.sweeps++
	stages := w.all()
	found := slices.Repeat([]float64{math.Inf(-1)}, stages+2) // by stage: its first layer; then the bottleneck and -next
	p := placing{stage: stages - 1, chosen: -1, next: next}
	if w.first()+len(w.stages) == stages {
		p.end = w.upTo[len(w.upTo)-1][len(w.stages[len(w.stages)-1].Layers)]
	}
	err := w.relay(p.encode(), false, func(m []float64) []float64 {
		p := decodePlacing(m)
		for s := len(w.stages) - 1; s >= 0; s-- {
			w.place(&p, s, bound, begins, found)
		}
		if w.first() == 0 && p.stage == 0 {
			p.settle(found)
		}
		found[stages], found[stages+1] = p.worst, -p.next
		return p.encode()
	})
	if err == nil {
		err = w.link.Max(found)
	}
	if err != nil || found[0] < 0 {
		return nil, -found[stages+1], err
	}
	cuts := make(partition.Partition, stages+1)
	for k := range stages {
		cuts[k] = int(found[k])
	}
	cuts[stages] = w.layers
	return cuts, found[stages], nil
}

// place continues a sweep from the right through the layers of the participant's stage s. At layer
// i it decides whether the stage being placed begins at i or at the layer chosen before.
func (w *sweeper) place(p *placing, s int, bound float64, begins, found []float64) {
	for i := len(w.stages[s].Layers) - 1; i >= 0 && p.stage >= 0; {
		layer, here := w.stages[s].First+i, w.upTo[s][i]
		if layer > int(begins[p.stage]) {
			i--
			continue
		}
		seconds, ok := w.keeps(p.stage, here, p.end, bound, &p.next)
		ok = ok && layer >= p.stage
		room := ok // whether the previous stage has memory and time for the layer before this one
		if ok && p.stage > 0 {
			_, room = w.keeps(p.stage-1, w.before(s, i), here, bound, &p.next)
		}
		off := math.Abs(here.Seconds - w.targets[p.stage])
		switch {
		case room && (p.chosen < 0 || off <= p.off):
			p.chosen, p.begin, p.off, p.seconds = layer, here, off, seconds
			i--
		case p.chosen >= 0:
			p.settle(found)
		case ok:
			i--
		default:
			p.stage = failed
		}
	}
}

// before returns the sum of the chain before the layer that precedes layer i of the participant's
// stage s. Layer i must not be the first of the chain.
func (w *sweeper) before(s, i int) Load {
	switch {
	case i > 0:
		return w.upTo[s][i-1]
	case s > 0:
		return w.upTo[s-1][len(w.stages[s-1].Layers)-1]
	}
	return w.ahead
}

// failed is the value of placing.stage after a stage for which no first layer was found.
const failed = -2

// placing is the message of a sweep from the right.
type placing struct {
	stage   int     // the stage whose first layer is being chosen; -1 once all stages have one
	chosen  int     // the nearest layer so far, -1 if none
	off     float64 // distance of chosen from the target, in seconds of work
	seconds float64 // seconds of the stage if it begins at chosen
	worst   float64 // largest seconds of the later stages
	next    float64 // the smallest bound at which a sweep would give another result
	begin   Load    // sum of the chain before chosen
	end     Load    // sum of the chain before the end of the stage
}

// settle fixes the first layer of the stage and continues with the previous stage.
func (p *placing) settle(found []float64) {
	found[p.stage] = float64(p.chosen)
	p.worst, p.end = max(p.worst, p.seconds), p.begin
	p.stage, p.chosen = p.stage-1, -1
}

func (p *placing) encode() []float64 {
	return append([]float64{float64(p.stage), float64(p.chosen), p.off, p.seconds, p.worst, p.next},
		encodeLayers([]Load{p.begin, p.end})...)
}

func decodePlacing(m []float64) placing {
	loads := decodeLayers(m[6:])
	return placing{int(m[0]), int(m[1]), m[2], m[3], m[4], m[5], loads[0], loads[1]}
}
