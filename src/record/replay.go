package record

import (
	"cmp"
	"math"
	"slices"
)

// Replay calls step and event for the steps and events of a run directory, in the order in which
// they happened.
func Replay(steps []Metrics, events []Event, step func(Metrics), event func(Event)) {
	list := inOrder(events)
	for _, m := range steps {
		list = list.before(m.Next(), event)
		step(m)
	}
	list.before(math.MaxInt, event)
}

// ordered is a list of events in the order in which they happened.
type ordered []placed

// placed is an event with the number of the first step that the records have after it.
type placed struct {
	Event
	at int
}

// inOrder sorts events. Events of steps that were run again happened before the resumption that
// follows them in the list.
func inOrder(events []Event) ordered {
	list := make(ordered, len(events))
	limit := math.MaxInt - 1
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Kind == Resumed {
			limit = min(limit, events[i].Step)
		}
		list[i].Event, list[i].at = events[i], min(events[i].Step, limit)
	}
	slices.SortStableFunc(list, func(a, b placed) int { return cmp.Compare(a.at, b.at) })
	return list
}

// before calls event for the events before the end of a step, and returns the rest.
func (list ordered) before(step int, event func(Event)) ordered {
	for len(list) > 0 && list[0].at < step {
		event(list[0].Event)
		list = list[1:]
	}
	return list
}
