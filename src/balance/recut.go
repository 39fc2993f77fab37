package balance

import "slices"

// widest is the number of neighbouring stages that are re-cut together. Three stages with n layers
// have O(n²) ways to cut them, few enough to try all.
const widest = 3

// cycle returns the number of rounds in which every window of neighbouring
// stages is re-cut once.
func cycle(stages int) int {
	if stages == 1 {
		return 0
	}
	return min(widest, max(1, stages-widest+1))
}

// windows returns the first stages of the windows that a round re-cuts, and the width of the
// windows. Windows of one round do not overlap, so they can work at the same time.
func windows(round, stages int) (first []int, width int) {
	width = min(widest, stages)
	for f := round % cycle(stages); f+width <= stages; f += width {
		first = append(first, f)
	}
	return first, width
}

// recut cuts the layers of a window of neighbouring stages in the best way. The best way has the
// least excess, then the smallest largest load, then the smallest Σ load². Only ways that beat the
// present one count; if there is none, nothing changes. All ways are tried, O(n²) for three stages
// with n layers. Loads are summed as in Stage.sum, so every rank finds the same way.
func recut(window []Stage) (changed bool) {
	w := search{stages: window, layers: layersOf(window), present: objectiveOf(window), counts: make([]int, len(window))}
	w.best = w.present
	w.tails()
	w.place(0, 0, objective{})
	if w.found == nil {
		return false
	}
	deal(window, w.layers, w.found)
	return true
}

// descend is phase 3, from the present cuts. It ends after a cycle without a change and returns the
// objective it has reached. Collective.
func (g *participant) descend(d *Descent) (objective, error) {
	reached, _, err := g.objective(false)
	d.Squares, d.Excess = []float64{reached.squares}, []int64{reached.excess}
	for idle := 0; err == nil && idle < cycle(g.all()); idle++ {
		var changed bool
		if changed, err = g.recut(len(d.Squares) - 1); err != nil {
			break
		}
		if reached, changed, err = g.objective(changed); changed {
			idle = -1
		}
		d.Squares, d.Excess = append(d.Squares, reached.squares), append(d.Excess, reached.excess)
	}
	return reached, err
}

// recut runs one round of phase 3 over the windows that contain a stage of this participant. It
// reports whether any of these windows has changed.
func (g *participant) recut(round int) (changed bool, err error) {
	first, n := g.first(), len(g.stages)
	begins, width := windows(round, g.all())
	for _, b := range begins {
		if b+width <= first || b >= first+n {
			continue
		}
		window, err := g.window(b, width)
		if err != nil {
			return changed, err
		}
		changed = recut(window) || changed
		if n < g.all() {
			g.stages[0] = window[first-b]
		}
	}
	return changed, nil
}

// search is the search for the best cuts of one window.
type search struct {
	stages  []Stage
	layers  []Load
	present objective   // of the present cuts
	best    objective   // of the best counts found; present until some are found
	found   []int       // the best layers per stage; nil until some beat present
	counts  []int       // the layers per stage that are being tried
	tail    []objective // tail[b]: objective of the last stage with layers [b, n)
}

// tails computes tail.
func (w *search) tails() {
	last := w.stages[len(w.stages)-1]
	all := w.layers
	w.tail = make([]objective, len(all))
	for b := range all {
		last.Layers = all[b:]
		w.tail[b] = last.objective()
	}
}

// place tries all ways for the stages from k on. Stage k begins at layer b. before is the objective
// of the stages before k.
func (w *search) place(k, b int, before objective) {
	behind := len(w.stages) - 1 - k
	if behind == 0 {
		w.counts[k] = len(w.layers) - b
		if all := before.with(w.tail[b].worst, w.tail[b].excess); all.beats(w.present) && all.less(w.best) {
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
