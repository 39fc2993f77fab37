package dynamic

import (
	"slices"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/model"
)

// A router decides within its layer which experts tokens go to (see model.Experts). While
// no assignment is dropped all experts of a layer together do the same work in every step;
// what is told is how unequal their loads are.
func init() { register("moe", func(config.Config) Kind { return &Loads{} }) }

// Loads tells how full the fullest expert is, and which share of the assignments is
// dropped, when either is a quarter more or less than was told last. It changes nothing.
type Loads struct {
	toldFullest, toldDropped float64
	fullest, dropped         mean
}

// Before tells the loads of the last steps: the mean over layers and microbatches of the
// largest load over the mean one, and the dropped share.
func (l *Loads) Before(int, Target) (Change, error) {
	drops := isNews(l.toldDropped, l.dropped.value)
	if !drops && !isNews(l.toldFullest, l.fullest.value) {
		return Change{}, nil
	}
	l.toldFullest, l.toldDropped = l.fullest.value, l.dropped.value
	return Change{Kind: "moe", Costs: drops, Detail: map[string]float64{"fullest": l.fullest.value, "dropped": l.dropped.value}}, nil
}

// After counts the tokens of all experts.
func (l *Loads) After(_ int, m cost.Measurement) error {
	var fullest float64
	var dropped, taken int64
	layers := 0
	for _, c := range m.Counts {
		if c.Name != model.ExpertCounts || len(c.Values) <= model.ExpertsFrom || c.Values[0] == 0 {
			continue
		}
		loads, sum := c.Values[model.ExpertsFrom:], int64(0)
		for _, load := range loads {
			sum += load
		}
		if sum == 0 {
			continue
		}
		fullest, layers = fullest+float64(slices.Max(loads))*float64(len(loads))/float64(sum), layers+1
		dropped, taken = dropped+c.Values[1], taken+sum
	}
	if layers > 0 {
		l.fullest.add(fullest / float64(layers))
		l.dropped.add(float64(dropped) / float64(dropped+taken))
	}
	return nil
}
