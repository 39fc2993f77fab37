package study

// Sampling says which steps of a made-up run are simulated: all before From, and from there on one
// in Interval. Such a step stands for the others, with its decision and the move that follows. A
// kind of dynamism that changes the model all the time draws every change from one distribution. So
// the sampled steps are a shorter run of the same kind. The zero Sampling leaves out none.
type Sampling struct {
	From     int `json:"from_step"` // first step
	Interval int `json:"interval"`  // steps that one stands for; up to 1 it stands for itself
}

// mostChanges is the largest number of changes of the model that are simulated by default. mostMade
// is the number where a schedule is made for each. If step times vary by 3 % from change to change
// their mean is then known to 0.2 and 0.3 %.
const mostChanges, mostMade = 400, 100

// sample returns the steps to simulate of a run whose model changes every `every` steps, from start
// on. interval counts changes; 0 chooses it, so that at most `most` are simulated. A tenth of these
// come one by one, in which the balancer leaves the cuts that the run begins with.
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

// leavesOut reports whether the model's change before a step is skipped, in a run that changes
// every `every` steps.
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
