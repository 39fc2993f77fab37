package schedule

import "math"

// tournament finds the stage that starts first: of equals F before I before W,
// then the lowest stage. It is a tree, each of whose nodes holds the better of
// the two below it.
type tournament struct {
	leaves int // a power of two
	start  []float64
	op     []Op
	best   []int // by node, from 1; the leaves are the last
}

func newTournament(stages int) tournament {
	t := tournament{leaves: 1}
	for t.leaves < stages {
		t.leaves *= 2
	}
	t.start, t.op, t.best = make([]float64, t.leaves), make([]Op, t.leaves), make([]int, 2*t.leaves)
	for s := range t.leaves {
		t.start[s], t.best[t.leaves+s] = math.Inf(1), s
	}
	for node := t.leaves - 1; node > 0; node-- {
		t.best[node] = t.best[2*node]
	}
	return t
}

// set says when a stage starts, and with which op.
func (t *tournament) set(stage int, start float64, op Op) {
	t.start[stage], t.op[stage] = start, op
	for node := (t.leaves + stage) / 2; node > 0; node /= 2 {
		a, b := t.best[2*node], t.best[2*node+1]
		if t.start[b] < t.start[a] || t.start[b] == t.start[a] && t.op[b] < t.op[a] {
			a = b
		}
		if t.best[node] == a && a != stage {
			return // nothing has changed for the nodes above
		}
		t.best[node] = a
	}
}

// winner returns the stage that starts first.
func (t *tournament) winner() int { return t.best[1] }
