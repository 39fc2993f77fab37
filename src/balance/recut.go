package balance

import "slices"

// widest is the number of neighbouring stages that are re-cut together. Two
// are not enough: on falling costs they get stuck far from the optimum.
const widest = 3

// turn returns the number of rounds after which every window of neighbouring
// stages has had its turn.
func turn(stages int) int {
	if stages == 1 {
		return 0
	}
	return min(widest, max(1, stages-widest+1))
}

// windows returns the first stages of the windows that are re-cut in a round,
// and their width. They do not overlap, so they work at the same time.
func windows(round, stages int) (first []int, width int) {
	width = min(widest, stages)
	for f := round % turn(stages); f+width <= stages; f += width {
		first = append(first, f)
	}
	return first, width
}

// recut gives the layers of a window of neighbouring stages out again in the
// best way: the least excess, then the smallest largest load, then the
// smallest Σ load², among the ways that beat the present one. Nothing changes
// if there is none. All ways are tried, O(n²) for three stages with n layers;
// loads are summed as Stage.sum does, so every rank finds the same.
func recut(window []Stage) (changed bool) {
	w := search{stages: window, now: standingOf(window), counts: make([]int, len(window))}
	for s := range window {
		w.layers = append(w.layers, window[s].Layers...)
	}
	w.best = w.now
	w.tails()
	w.place(0, 0, standing{})
	if w.found == nil {
		return false
	}
	deal(window, w.layers, w.found)
	return true
}

// search is one window's search.
type search struct {
	stages []Stage
	layers []Load
	now    standing   // before
	best   standing   // of the counts found, else now
	found  []int      // layers of each stage; nil until something beats now
	counts []int      // layers of each stage, being tried
	tail   []standing // tail[b]: the last stage alone with layers [b, n)
}

// tails computes tail.
func (w *search) tails() {
	last := w.stages[len(w.stages)-1]
	all := w.layers
	w.tail = make([]standing, len(all))
	for b := range all {
		last.Layers = all[b:]
		w.tail[b] = last.own()
	}
}

// place tries all ways for stages from k on, which begin at layer b; before is
// the standing of the stages before k.
func (w *search) place(k, b int, before standing) {
	behind := len(w.stages) - 1 - k
	if behind == 0 {
		w.counts[k] = len(w.layers) - b
		if all := before.with(w.tail[b].worst, w.tail[b].excess); all.beats(w.now) && all.less(w.best) {
			w.best, w.found = all, slices.Clone(w.counts)
		}
		return
	}
	sum := Load{}
	for e := b + 1; e <= len(w.layers)-behind; e++ {
		sum = sum.plus(w.layers[e-1])
		st := &w.stages[k]
		all := before.with(st.load(sum.Seconds), st.excess(sum))
		if all.excess > w.best.excess || w.best.excess == 0 && all.worst > w.best.worst {
			return // more layers only make it worse
		}
		w.counts[k] = e - b
		w.place(k+1, e, all)
	}
}
