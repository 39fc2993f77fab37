package profile

import "math"

// drifted is the number of standard errors by which the recent steps of a layer must differ from
// the steps before them. It is large because all layers are tested after every step.
const drifted = 5

// drifts reports whether the recent cost of some layer differs from its cost in the steps before by
// more than noise explains.
func (e *estimator) drifts() bool {
	older := len(e.Steps) - recent
	if older < recent {
		return false
	}
	deviation := math.Hypot(e.Spread[0], e.Spread[1])
	for l, stage := range e.Home {
		var sums, counts [2]float64 // of the older steps and the recent ones
		for i, s := range e.Steps {
			if s.Owners[l] != stage || !s.Usable[stage] {
				continue
			}
			seconds, should := e.matched(s, l, &e.Base[l])
			if should == 0 {
				continue
			}
			part := 0
			if i >= older {
				part = 1
			}
			x := seconds/(should*e.Pace[stage]) - 1
			sums[part] += max(-drifted*deviation, min(x, drifted*deviation))
			counts[part]++
		}
		if counts[0] < recent/2 || counts[1] < recent/2 {
			continue
		}
		off := math.Abs(sums[1]/counts[1] - sums[0]/counts[0])
		if off > drifted*deviation*math.Sqrt(1/counts[0]+1/counts[1]) {
			return true
		}
	}
	return false
}
