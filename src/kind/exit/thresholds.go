package exit

import (
	"math"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/model"
)

// newKind returns what freezes the model, or else what moves thresholds, or nothing.
func newKind(c config.Config) dynamic.Kind {
	e := config.Of[options](c)
	if e.Stage2 > 0 {
		return &stage2{step: e.Stage2}
	}
	if e.Share == 0 {
		return dynamic.Nothing{}
	}
	return &thresholds{Share: e.Share, Start: e.Start, Until: e.Until, names: model.FromConfig(c).Names()}
}

// thresholds moves the thresholds of early exits (see Exits). By the last block the given share of
// the tokens should have left, an equal part of it at each exit:
//
//	dynamic.Share(t) = Share · (t - Start) / (Until - Start)    between 0 and Share
//
// After a step every exit has counted how many tokens would have left with other thresholds around
// its own. The exit takes the threshold at which the wanted number would have left, or all tokens
// where fewer came. If the number was nearly right it goes half of the way: the difference is
// mostly chance. Thresholds are state of their layers. Between steps nothing else is remembered,
// except the numbers for the log.
type thresholds struct {
	Share        float64
	Start, Until int

	names []string     // of the chain's layers
	stage *model.Stage // of this rank, in the step that After is given
	last  map[string]float64
}

// gain returns how far a threshold goes to where it should have been.
func gain(left, wanted float64) float64 {
	if math.Abs(left-wanted) > wanted/2 {
		return 1
	}
	return 0.5
}

// tellings is how often the thresholds are reported while the share rises.
const tellings = 10

// at returns the share of the tokens that leave in a step.
func (e *thresholds) at(step int) float64 {
	switch {
	case step < e.Start:
		return 0
	case step >= e.Until:
		return e.Share
	}
	return e.Share * float64(step-e.Start) / float64(e.Until-e.Start)
}

// Before tells, when a tenth of the share has been reached, share and thresholds: what the
// blocks behind the exits cost has changed.
func (e *thresholds) Before(step int, t dynamic.Target) (dynamic.Change, error) {
	e.stage = t.Stage
	if step == 0 || e.last == nil || int(tellings*e.at(step)/e.Share) == int(tellings*e.at(step-1)/e.Share) {
		return dynamic.Change{}, nil
	}
	return dynamic.Change{Kind: "exit", Detail: e.last}, nil
}

// After moves the thresholds of the stage's exits for the next step.
func (e *thresholds) After(step int, counts []cost.CountSum) error {
	exits := exitsIn(counts)
	e.last = map[string]float64{"share": e.at(step + 1)}
	all, left := 0.0, 0.0
	for k, x := range exits {
		if k == 0 {
			all = x.entered
		}
		left += x.left
		if x.entered == 0 {
			continue // nothing says what its threshold should be
		}
		wanted := min(all*e.at(step+1)/float64(len(exits)), x.entered)
		next := min(max(x.threshold+gain(x.left, wanted)*x.offset(wanted), 0), 1)
		e.last[e.names[x.layer]+".threshold"] = next
		if l := e.stage.Layer(x.layer); l != nil {
			l.Tune(next)
		}
	}
	if all > 0 {
		e.last["left"] = left / all
	}
	return nil
}

// counted is what an exit counted in the microbatches of a step.
type counted struct {
	layer         int
	entered, left float64
	threshold     float64
	around        []float64 // tokens, by Offsets
}

// exitsIn returns what every exit counted, in chain order.
func exitsIn(counts []cost.CountSum) (list []counted) {
	for _, c := range counts {
		if c.Name != Counts && c.Name != aroundCounts {
			continue
		}
		if len(list) == 0 || list[len(list)-1].layer != c.Layer {
			list = append(list, counted{layer: c.Layer, around: make([]float64, len(offsets))})
		}
		x := &list[len(list)-1]
		if c.Name == Counts {
			v := left.Read(c.Values)
			x.entered, x.left = v.Get("entered"), v.Get("left")
			continue
		}
		v := around.Read(c.Values)
		x.threshold = v.Get("threshold") / float64(max(1, c.Microbatches)) / thresholdUnit
		for i, tokens := range v.Rest() {
			x.around[i] = float64(tokens)
		}
	}
	return list
}

// offset returns how far from the threshold as many tokens as wanted would have left,
// as a straight line between the two nearest counts.
func (x counted) offset(wanted float64) float64 {
	at, step := len(offsets)/2, 1
	if x.around[at] > wanted {
		step = -1 // to higher thresholds
	}
	for ; at+step >= 0 && at+step < len(x.around) && x.around[at] != wanted; at += step {
		a, b := x.around[at], x.around[at+step]
		if (a-wanted)*(b-wanted) <= 0 {
			part := (wanted - a) / (b - a)
			return offsets[at] + part*(offsets[at+step]-offsets[at])
		}
	}
	return offsets[at]
}
