package moe

import (
	"slices"

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

// Before tells the loads of the last steps: the mean over layers and microbatches of the
// largest load over the mean one, and the dropped share.
func (l *loads) Before(int, dynamic.Target) (dynamic.Change, error) {
	drops := dynamic.IsNews(l.toldDropped, l.dropped.Value)
	if !drops && !dynamic.IsNews(l.toldFullest, l.fullest.Value) {
		return dynamic.Change{}, nil
	}
	l.toldFullest, l.toldDropped = l.fullest.Value, l.dropped.Value
	return dynamic.Change{Kind: "moe", Costs: drops, Detail: map[string]float64{"fullest": l.fullest.Value, "dropped": l.dropped.Value}}, nil
}

// After counts the tokens of all experts.
func (l *loads) After(_ int, m cost.Measurement) error {
	var fullest float64
	var dropped, taken int64
	layers := 0
	for _, c := range m.Counts {
		if c.Name != Counts || len(c.Values) <= CountsFrom || c.Values[0] == 0 {
			continue
		}
		byExpert, sum := c.Values[CountsFrom:], int64(0)
		for _, load := range byExpert {
			sum += load
		}
		if sum == 0 {
			continue
		}
		fullest, layers = fullest+float64(slices.Max(byExpert))*float64(len(byExpert))/float64(sum), layers+1
		dropped, taken = dropped+c.Values[1], taken+sum
	}
	if layers > 0 {
		l.fullest.Add(fullest / float64(layers))
		l.dropped.Add(float64(dropped) / float64(dropped+taken))
	}
	return nil
}
