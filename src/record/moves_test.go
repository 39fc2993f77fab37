package record

import "testing"

func TestMoves(t *testing.T) {
	move := func(step int, before, predicted, after Float) Event {
		return Event{Step: step, Kind: Balance, Bytes: 1, Before: before, Predicted: predicted, After: after}
	}
	undone := move(9, 1, 0.5, 2)
	undone.Detail = map[string]any{"undone": true}
	for _, c := range []struct {
		name   string
		events []Event
		count  int
		want   string
	}{
		{"none", nil, 0, ""},
		{"one that paid less than predicted", []Event{move(3, 1, 0.5, 0.9)}, 1, ""},
		{"one that did not pay", []Event{move(7, 1.28, 1, 1.32)}, 1,
			"1 of 1 move did not pay: after step 7 a step 1.28x as fast was predicted, 0.97x was measured"},
		{"the one that fell short the most is named", []Event{move(3, 1, 0.9, 1), move(5, 1, 0.5, 1.25), move(7, 1, 0.8, 0.8)}, 3,
			"2 of 3 moves did not pay: after step 5 a step 2.00x as fast was predicted, 0.80x was measured"},
		{"one that was not measured", []Event{move(3, 1, 0.9, 0), move(5, 1, 0.5, 0.5)}, 2,
			"1 of 2 moves could not be measured: the model changed or the run ended first"},
		{"orders of work, moves back and moves for memory promise nothing", []Event{{Kind: Balance, Before: 1, Predicted: 0.5, After: 2}, undone, move(3, 1, 1.5, 2)}, 0, ""},
	} {
		var tally Tally
		for _, e := range c.events {
			tally.Event(e)
		}
		m := tally.Moves()
		if m == nil {
			m = new(Moves)
		}
		if got := m.String(); got != c.want || m.Count != c.count {
			t.Errorf("%s: %d moves, %q, want %d, %q", c.name, m.Count, got, c.count, c.want)
		}
	}
}
