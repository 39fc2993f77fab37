package profile

import "dynmo/src/cost"

// shared is what all ranks need of a step in the next one.
type shared struct {
	counts []cost.CountSum
	known  []known // by layer; nil while all have worked on full microbatches
}

// known is what is known of a layer that may not work on all tokens.
type known struct {
	fixed   float64    // of its passes on a full microbatch the share of the seconds that passes on few tokens take too
	seconds cost.Stage // what its passes take on a full microbatch
}

// known returns what is known of layers.
func (e *estimator) known() (list []known) {
	for l, home := range e.Home {
		if e.Lines == nil {
			return nil
		}
		seconds, _ := e.lower(l, home)
		list = append(list, known{e.fixed(l), seconds})
	}
	return list
}

// of returns what is known of a layer.
func (p *Profiler) of(layer int) known {
	if p.known == nil {
		return known{}
	}
	return p.known[layer]
}

// Share returns, on the root, what all ranks need of a step in the next one.
func (p *Profiler) Share(m Measurement) []byte {
	return pack(p.Counts, shared{m.Counts, p.estimator.known()}, (*message).shared)
}

// Take takes what Share returned, and returns what all layers counted in the step, ascending by
// layer and name.
func (p *Profiler) Take(b []byte) []cost.CountSum {
	s := unpack(p.Counts, b, (*message).shared)
	p.known = s.known
	return s.counts
}
