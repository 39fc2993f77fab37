package report

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/record"
	"dynmo/src/trace"
)

// mark is a step at which something changed.
type mark struct {
	Kind string  `json:"kind"` // dynamic, migrate, balance, repack or release
	Step float64 `json:"step"` // the step, or half a step between two steps for a change between them
}

// marks returns the changes of a run, with at most one mark of a kind for each hundredth of the
// run. A decision that moved layers appears only as the move.
func (r Run) marks() []mark {
	moved := map[int]bool{}
	for _, e := range r.Events {
		if e.Moved() {
			moved[e.Step] = true
		}
	}
	width := max(1, float64(len(r.Metrics))/100)
	seen := map[mark]bool{}
	list := []mark{}
	for _, e := range r.Events {
		if e.Refused() != "" {
			continue
		}
		m := mark{string(e.Kind), float64(e.Step)}
		switch e.Kind {
		case record.Dynamic: // before the step
			m.Step -= 0.5
		case record.Migrate, record.Repack: // after the step
			m.Step += 0.5
		case record.Release:
			var d record.Released
			if e.Read(&d) == nil {
				m.Step = float64(r.during(e, d))
			}
		case record.Balance:
			m.Step += 0.5
			if moved[e.Step] {
				continue
			}
		default:
			continue
		}
		place := mark{m.Kind, math.Floor(m.Step / width)}
		if !seen[place] {
			seen[place] = true
			list = append(list, m)
		}
	}
	return list
}

// segment is the metrics [lo, hi).
type segment struct{ lo, hi int }

// late returns the second half of the steps, after layers have moved.
func (s segment) late() segment { return segment{s.lo + (s.hi-s.lo)/2, s.hi} }

// whole returns the segment of all steps.
func (r Run) whole() segment { return segment{0, len(r.Metrics)} }

// index returns the index of the first metric at or after a step.
func (r Run) index(step int) int {
	n, _ := slices.BinarySearchFunc(r.Metrics, step, func(m record.Metrics, step int) int { return cmp.Compare(m.Step, step) })
	return n
}

// cut is a change of the model or a move of layers.
type cut struct {
	next  int // index of the first metric after it
	step  int // of the event
	moved bool
}

// cuts returns the changes of a run in order.
func (r Run) cuts() (list []cut) {
	for _, e := range r.Events {
		switch {
		case e.Kind == record.Dynamic: // before the step
			list = append(list, cut{r.index(e.Step), e.Step, false})
		case e.Moved(): // after the step
			list = append(list, cut{r.index(e.Step + 1), e.Step, true})
		}
	}
	return list
}

// first returns the steps before the first change of the model or move of layers, else the whole
// run. A change before the first step does not count.
func (r Run) first() segment {
	s := r.whole()
	for _, c := range r.cuts() {
		if c.next > 0 {
			s.hi = min(s.hi, c.next)
		}
	}
	return s
}

// lastSteps returns the steps after the last change of the model or move of layers, else the whole run. A
// change behind the last step does not count.
func (r Run) lastSteps() segment {
	s := r.whole()
	for _, c := range r.cuts() {
		if c.next < s.hi {
			s.lo = max(s.lo, c.next)
		}
	}
	return s
}

// phases returns the steps between changes of the model.
func (r Run) phases() []segment {
	list := []segment{r.whole()}
	for _, c := range r.cuts() {
		if last := &list[len(list)-1]; !c.moved && last.lo < c.next && c.next < last.hi {
			last.hi = c.next
			list = append(list, segment{c.next, len(r.Metrics)})
		}
	}
	return list
}

// bestMove returns the segments before and after the move that shortened the mean makespan most,
// and the step before the move. ok is false if no layer moved between recorded steps.
func (r Run) bestMove() (before, after segment, step int, ok bool) {
	cuts := r.cuts()
	best := math.Inf(-1)
	for i, c := range cuts {
		a, b := segment{0, c.next}, segment{c.next, len(r.Metrics)}
		if i > 0 {
			a.lo = cuts[i-1].next
		}
		if i+1 < len(cuts) {
			b.hi = cuts[i+1].next
		}
		if !c.moved || a.lo >= a.hi || b.lo >= b.hi {
			continue
		}
		makespan := func(m record.Metrics) float64 { return float64(m.Makespan) }
		if gain := r.mean(a, makespan) - r.mean(b, makespan); gain > best {
			best, before, after, step, ok = gain, a, b, c.step, true
		}
	}
	return before, after, step, ok
}

// mean returns the mean of a number over a segment.
func (r Run) mean(s segment, of func(record.Metrics) float64) float64 {
	sum := 0.0
	for _, m := range r.Metrics[s.lo:s.hi] {
		sum += of(m)
	}
	return sum / float64(s.hi-s.lo)
}

// middle returns the median of a number over a segment.
func (r Run) middle(s segment, of func(record.Metrics) record.Float) record.Float {
	var v []float64
	for _, m := range r.Metrics[s.lo:s.hi] {
		v = append(v, float64(of(m)))
	}
	return record.Float(trace.Median(v))
}
