package profile

import "math"

// drifted is how many standard errors a layer's recent steps must lie off the ones
// before them: it is asked of all layers after every step.
const drifted = 5

// drifts reports whether a layer costs another amount in the recent steps than in those
// before them, by more than noise explains.
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
