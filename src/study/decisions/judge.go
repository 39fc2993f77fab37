package decisions

import (
	"dynmo/src/partition"
)

const (
	// needlessGain is the share of the true bottleneck that a move must gain not to be
	// needless.
	needlessGain = 0.005
	// answered is how many times the optimum a bottleneck may be after what changed has
	// been answered.
	answered = 1.05
)

// Verdict is how a balancer did in a run.
type Verdict struct {
	Regret   []float64 // by decision: true bottleneck over the optimum of the cuts after it
	Moves    int
	Needless int   // moves that gained less than needlessGain
	Answers  []int // by change: decisions until it was answered; all until the next one, or the end, if it was not
}

// judge returns the verdict on the cuts before the first step and after every one.
func (w *world) judge(first partition.Partition, cuts []partition.Partition) Verdict {
	var v Verdict
	before := first
	for step, after := range cuts {
		truth, slow := w.truth(step), w.slow(step)
		if !after.Equal(before) {
			v.Moves++
			if bottleneck(truth, after, slow) > (1-needlessGain)*bottleneck(truth, before, slow) {
				v.Needless++
			}
		}
		before = after
		if decides(step) {
			v.Regret = append(v.Regret, w.regret(step, after))
		}
	}
	for _, from := range w.events() {
		v.Answers = append(v.Answers, w.answer(from, cuts))
	}
	return v
}

// decides reports whether a decision follows a step: one in every so many, also
// where the policy says itself when it decides.
func decides(step int) bool { return (step+1)%every == 0 }

// regret returns the true bottleneck of some cuts at a step over the smallest.
func (w *world) regret(step int, cuts partition.Partition) float64 {
	truth, slow := w.truth(step), w.slow(step)
	_, best := optimum(truth, w.Stages, slow)
	return bottleneck(truth, cuts, slow) / best
}

// events returns the steps from which on something has lastingly changed.
func (w *world) events() []int {
	var list []int
	for _, p := range w.phases[1:] {
		list = append(list, p.step)
	}
	if w.Scenario == SlowRank {
		list = append(list, slowFrom)
	}
	return list
}

// answer returns how many decisions it takes from a change on until the cuts are
// good again: none if they still are.
func (w *world) answer(from int, cuts []partition.Partition) int {
	if w.regret(from, cuts[from-1]) <= answered {
		return 0
	}
	decisions := 0
	for step := from; step < w.Steps && !(step > from && w.changes(step)); step++ {
		if !decides(step) {
			continue
		}
		decisions++
		if w.regret(step, cuts[step]) <= answered {
			break
		}
	}
	return decisions
}
