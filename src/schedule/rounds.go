package schedule

import "math"

// runRounds makes lists in rounds, and returns the seconds of the step. In a round every stage does
// one I, and then every stage does one F. An instruction is left out if its input or its room is
// missing. A stage prefers the chunk that is later in the chain. In a V of two chunks warmUp comes
// before the first round.
//
// W fills the time in which a stage would wait, if the whole W fits. A W also comes first if the
// stage would otherwise become the one that has waited longest. The latter holds with Fill, and
// always before an I of the first chunk. The lists are made again as long as the step gets shorter.
// A stage may then wait for the seconds by which it waited less than the others.
//
// The loop ends, as in List, because every round can advance the oldest unfinished microbatch. The
// rounds are those of the authors of ZB-V for any costs (Qi et al. 2024, section 6). Departs:
// stages may differ in costs and caps, and the makespan decides, not the longest wait.
func (l *Lister) runRounds() float64 {
	var kept []Instr
	least := math.Inf(1)
	granted := make([]float64, len(l.stages))
	for {
		l.clear()
		if l.o.Map.Vee && l.chunks == 2 {
			l.warmUp()
		}
		for l.round(granted) {
		}
		for s := range l.stages {
			for l.weight(s) {
			}
		}
		seconds := l.seconds()
		if seconds >= least*(1-1e-12) {
			copy(l.lists, kept)
			return least
		}
		least, kept = seconds, append(kept[:0], l.lists...)
		for s := range l.stages {
			granted[s] = l.longest - l.stages[s].waited
		}
	}
}

// warmUp does the F before the first I in a V of two chunks. The first microbatch goes through all
// stages. While it is on its way back to a stage, this stage does F of its first chunk. Then every
// stage alternates F of both chunks. A stage stops when it has done as many F as the stage before
// it, and more of its second chunk.
func (l *Lister) warmUp() {
	last := len(l.stages) - 1
	for s := range l.stages {
		l.forward(s, 0)
	}
	l.forward(last, 1)
	for s := last - 1; s >= 0; s-- {
		at := &l.stages[s]
		first, second := at.places[0], at.places[1]
		for more := true; more && at.open+2*s+2 <= at.cap && at.clock+first.cost[F] <= second.ready[F][0]; {
			for before := 0; before <= s && more; before++ {
				more = l.forward(before, 0)
			}
		}
		l.forward(s, 1)
	}
	chunk, stuck := 0, 0
	for s := 1; s <= last; s++ {
		at, before := &l.stages[s], &l.stages[s-1]
		level := func() bool {
			done, wanted := at.places[1].next[F], before.places[1].next[F]
			return at.open >= before.open && (done > wanted || wanted == l.o.Microbatches)
		}
		for stuck < 2 && !level() {
			stuck++
			for behind := last; behind >= s; behind-- {
				if l.forward(behind, chunk) {
					stuck = 0
				}
			}
			chunk = 1 - chunk
		}
	}
}

// forward does the next F of a chunk if it can, and reports whether it could.
func (l *Lister) forward(stage, chunk int) bool {
	at := &l.stages[stage]
	p := at.places[chunk]
	if p.next[F] == p.known[F] || !at.hasRoom(p) {
		return false
	}
	l.wait(p, F, false, 0)
	return true
}

// round carries out one round. granted has, by stage, the seconds that the stage may wait. round
// reports whether any stage did an instruction.
func (l *Lister) round(granted []float64) (moved bool) {
	for s := range l.stages {
		l.stages[s].turn = l.stages[s].nextI(l.o.Microbatches)
	}
	for v := len(l.places) - 1; v >= 0; v-- {
		if p := &l.places[v]; l.stages[p.stage].turn == p && p.next[I] < p.known[I] {
			l.wait(p, I, p.chunk == 0 || l.rule.Fill, granted[p.stage])
			moved = true
		}
	}
	for s := range l.stages {
		at := &l.stages[s]
		for c := l.chunks - 1; c >= 0; c-- {
			p := at.places[c]
			if p.next[F] == p.known[F] {
				continue
			}
			for !at.hasRoom(p) && l.weight(s) {
			}
			if at.hasRoom(p) {
				l.wait(p, F, l.rule.Fill, granted[s])
				moved = true
				break
			}
		}
	}
	return moved
}

// nextI returns the first chunk whose next I has a known start. If there is none, it returns the
// last chunk that lacks an I, because the round may still bring its input.
func (at *listed) nextI(microbatches int) (p *place) {
	for _, p := range at.places {
		if p.next[I] < p.known[I] {
			return p
		}
	}
	for _, other := range at.places {
		if other.next[I] < microbatches {
			p = other
		}
	}
	return p
}

// wait does the next F or I of a chunk, and before it the W that fit into the wait. With fill, one
// more W may come first. It comes if the stage would otherwise have waited longer than granted and
// longer than every other stage.
func (l *Lister) wait(p *place, op Op, fill bool, granted float64) {
	at := &l.stages[p.stage]
	ready := p.ready[op][p.next[op]]
	for w := at.nextW(); w != nil && at.clock+w.cost[W] <= ready; w = at.nextW() {
		l.weight(p.stage)
	}
	if fill && at.waited+ready-at.clock > max(granted, l.longest) {
		l.weight(p.stage)
	}
	start := max(at.clock, ready)
	if len(at.list) > 0 {
		at.waited += start - at.clock
		l.longest = max(l.longest, at.waited)
	}
	l.do(p, op, start)
}

// weight does the oldest W of a stage, and reports whether there was a W.
func (l *Lister) weight(stage int) bool {
	at := &l.stages[stage]
	w := at.nextW()
	if w != nil {
		l.do(w, W, at.clock)
	}
	return w != nil
}

// hasRoom reports whether the caps allow the next F of chunk p. Let c be the first chunk that is p or
// has microbatches in flight. Every chunk behind c without any keeps room for one microbatch, or the
// microbatches of c could not go on.
func (at *listed) hasRoom(p *place) bool {
	needed, held := at.open+1, false
	for _, other := range at.places {
		if other == p || other.next[F] > other.next[W] {
			held = true
		} else if held {
			needed++
		}
	}
	return needed <= at.cap && p.next[F]-p.next[W] < p.cap
}
