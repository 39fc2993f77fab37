package moe

import (
	"dynmo/src/cost"
	"dynmo/src/dynamic"
)

// loads tells how full the fullest expert is, and which share of the assignments is
// dropped, when either is a quarter more or less than was told last. It changes nothing: a
// router decides within its layer which experts tokens go to (see Experts). While no
// assignment is dropped all experts of a layer together do the same work in every step.
type loads struct {
	toldFullest, toldDropped float64
	fullest, dropped         dynamic.Mean
}

// Before tells the loads of the last steps: the mean over layers of the largest load over the
// mean one, each the mean over microbatches, and the dropped share.
func (l *loads) Before(int, dynamic.Target) (dynamic.Change, error) {
	drops := dynamic.IsNews(l.toldDropped, l.dropped.Value)
	if !drops && !dynamic.IsNews(l.toldFullest, l.fullest.Value) {
		return dynamic.Change{}, nil
	}
	l.toldFullest, l.toldDropped = l.fullest.Value, l.dropped.Value
	return dynamic.Change{Kind: "moe", Costs: drops, Detail: map[string]float64{"fullest": l.fullest.Value, "dropped": l.dropped.Value}}, nil
}

// After counts the tokens of all experts.
func (l *loads) After(_ int, counts []cost.CountSum) error {
	var full, drops, taken, layers float64
	for _, c := range counts {
		v := assigned.Read(c.Values)
		if c.Name != assigned.Name || v.Get("tokens") == 0 || sum(v) == 0 {
			continue
		}
		full, layers = full+fullness(c.Peaks, v), layers+1
		drops, taken = drops+v.Get("dropped"), taken+sum(v)
	}
	if layers > 0 {
		l.fullest.Add(full / layers)
		l.dropped.Add(drops / (drops + taken))
	}
	return nil
}
