package pipeline

import "dynmo/src/schedule"

// room is how many buffers a virtual stage has.
type room struct {
	slots       int // activation memory: microbatches in flight
	holds       int // memory of microbatches between I and W
	activations int // that come from the virtual stage before
	gradients   int // that come from the one behind
	outgoing    int // gradients on their way to another rank
}

// rooms returns the room of every virtual stage. What comes from another rank
// has one buffer more than can be in use, so that the next message can arrive
// early; what comes from this rank, one for each microbatch in flight.
func rooms(s schedule.Schedule) []room {
	m, peaks := s.Map, s.Peaks()
	list := make([]room, m.Virtual())
	for v, p := range peaks {
		r := room{slots: p.InFlight, holds: p.Between, activations: p.InFlight + 1, gradients: p.Between + 1, outgoing: p.Outgoing}
		switch {
		case v == 0:
			r.activations = 0
		case m.Stage(v-1) == m.Stage(v):
			r.activations = p.InFlight
		}
		switch {
		case v == len(list)-1:
			r.gradients = 0
		case m.Stage(v+1) == m.Stage(v):
			r.gradients = p.InFlight
		}
		list[v] = r
	}
	return list
}
