package study

import "math"

// Sampling is which steps of a run that is made up are simulated: all before From, and
// from there on one in Interval, which stands for the others with its decision and the
// move that follows. A kind of dynamism that changes the model all the time draws every
// change alike, so that a run of the sampled steps is one of the whole, only shorter.
// The zero Sampling leaves out none.
type Sampling struct {
	From     int // first step
	Interval int // steps that one stands for; up to 1 it stands for itself
}

// mostChanges and mostMade are how many changes of the model are simulated at most where
// nothing else is asked for, the latter where a schedule is made for each. Step times that
// vary by 3 % from change to change have a mean then that is known to 0.2 and 0.3 %.
const mostChanges, mostMade = 400, 100

// sample returns which steps to simulate of a run whose model changes every so many
// steps, from start on. interval is of changes; 0 chooses it, so that at most so many are
// simulated. A tenth of these come one by one, in which the balancer leaves the cuts that
// the run begins with.
func sample(steps, start, every, interval, most int) Sampling {
	changes, first := (steps-start+every-1)/every, most/10
	if interval == 0 && changes > most {
		interval = (changes - first + most - first - 1) / (most - first)
	}
	if interval <= 1 || changes <= first {
		return Sampling{}
	}
	return Sampling{From: start + first*every, Interval: interval}
}

// leavesOut reports whether the model's change before a step is not looked at, in a run
// that changes every so many steps.
func (s Sampling) leavesOut(step, every int) bool {
	return s.Interval > 1 && step > s.From && (step-s.From)/every%s.Interval != 0
}

// stands returns how many of the left steps of a phase a step stands for.
func (s Sampling) stands(step, left int) int {
	if s.Interval <= 1 || step < s.From {
		return 1
	}
	return min(s.Interval, left)
}

// Error returns the standard error of the mean step time of a run that was sampled,
// relative to it: what the steps vary by from one that was simulated to the next.
func (r Run) Error(sampling Sampling) float64 {
	sum, squares, n := 0.0, 0.0, 0.0
	for _, s := range r.Segments {
		if sampling.Interval > 1 && s.Step >= sampling.From {
			sum, squares, n = sum+s.Seconds, squares+s.Seconds*s.Seconds, n+1
		}
	}
	if n < 2 {
		return 0
	}
	mean := sum / n
	return math.Sqrt(max(0, squares/n-mean*mean)/(n-1)) / mean
}
