package search

import (
	"encoding/binary"

	"dynmo/src/cost"
	"dynmo/src/layout"
)

// Memo keeps predictions, so that several problems predict each step once. The caller puts one Memo into
// the field Memo of each. The problems have one network. Their settings may differ in balance.kind,
// balance.by, stages and microbatches alone. A Memo and its problems are for one goroutine.
type Memo struct {
	tables []*predictions
	last   int // index of the last that was found: runs of one series ask in one order
}

// predictions are those for one table of costs, by Problem.key.
type predictions struct {
	costs   cost.Table
	seconds map[string]float64
	plans   map[string]Plan
}

func newPredictions(t cost.Table) *predictions {
	return &predictions{t, map[string]float64{}, map[string]Plan{}}
}

// find returns the predictions for some costs.
func (m *Memo) find(t cost.Table) *predictions {
	for i := range m.tables {
		if at := (m.last + i) % len(m.tables); m.tables[at].costs.Equal(t) {
			m.last = at
			return m.tables[at]
		}
	}
	m.last = len(m.tables)
	m.tables = append(m.tables, newPredictions(t))
	return m.tables[m.last]
}

// key returns a text that layouts share if they have one prediction. isKept is false for layouts whose
// predictions are not kept: those on other ranks, in other schedules than the base, and those
// whose costs choose which layers recompute.
func (p *Problem) key(l layout.Layout) (key string, isKept bool) {
	if l.Ranks != nil || p.twice != nil || !l.Schedule.Equal(p.form(l.Map().Virtual()).base) {
		return "", false
	}
	text := make([]byte, 0, 4+2*len(l.Cuts))
	for _, n := range append([]int{l.Mesh.Stages, l.Schedule.Microbatches}, l.Cuts...) {
		text = binary.AppendUvarint(text, uint64(n))
	}
	return string(text), true
}
