package verdict

import (
	"fmt"

	"dynmo/src/record"
)

// Moves compares the predicted and the measured speedup of moves of layers between stages. A move
// pays if a step after it takes less time than the step before it. Packings are not counted.
type Moves struct {
	Count      int `json:"count"`
	Unpaid     int `json:"unpaid"`     // moves after which steps were no faster
	Unmeasured int `json:"unmeasured"` // moves after which the model changed before a step was measured
	// The next fields belong to the unpaid move with the largest shortfall.
	Step      int          `json:"step"`
	Predicted record.Float `json:"predicted"` // predicted speedup of a step by the move
	Measured  record.Float `json:"measured"`  // measured speedup
}

// add counts the move of an event, if the event has one.
func (m *Moves) add(e record.Event) {
	if e.Kind != record.Balance || e.Bytes == 0 || e.Detail["undone"] == true || e.Before == 0 || e.Predicted >= e.Before {
		return
	}
	n := max(1, e.Count)
	m.Count += n
	switch {
	case e.After == 0:
		m.Unmeasured += n
	case e.After >= e.Before:
		m.Unpaid += n
		if short := e.After / e.Predicted; m.Unpaid == n || short > m.Predicted/m.Measured {
			m.Step, m.Predicted, m.Measured = e.Step, e.Before/e.Predicted, e.Before/e.After
		}
	}
}

// String returns sentences about the moves that did not pay, "" if all of them did.
func (m Moves) String() string {
	text := ""
	if m.Unpaid > 0 {
		text = fmt.Sprintf("%d of %s did not pay: after step %d steps were predicted %.2fx as fast and measured %.2fx",
			m.Unpaid, record.Counted(m.Count, "move"), m.Step, m.Predicted, m.Measured)
	}
	if m.Unmeasured > 0 {
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("%d of %s not measured: the model changed or the run ended first", m.Unmeasured, record.Counted(m.Count, "move"))
	}
	return text
}
