package decisions

import (
	"slices"

	"dynmo/src/balance"
	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/sim"
)

const (
	// worth is the share of the true bottleneck, or of the true step, that a move must
	// gain not to be needless: where one stage is the bottleneck whatever the cuts, a
	// step may still gain.
	worth = 0.005
	// answered is how many times longer than what can be reached a true step may take
	// after what changed has been answered. Not the bottleneck: where microbatches are
	// few, one that is a tenth larger may hide behind filling and draining.
	answered = 1.05
)

// Verdict is how a balancer did in a run.
type Verdict struct {
	Bottleneck []float64 // by decision: true bottleneck of the cuts after it over the smallest
	// Regret is by decision the same or, where that is less, their true step over the
	// one at the cuts of the smallest bottleneck, but no less than 1.
	Regret   []float64
	Moves    int
	Needless int   // moves that were not worth it
	Answers  []int // by change: decisions until it was answered; all until the next one, or the end, if it was not
}

// judge returns the verdict on a balancer's cuts before the first step and after
// every one.
func (w *world) judge(balancer string, first partition.Partition, cuts []partition.Partition) (Verdict, error) {
	var v Verdict
	before := first
	for step, after := range cuts {
		if !after.Equal(before) {
			v.Moves++
			if !w.gains(step, before, after) {
				v.Needless++
			}
		}
		before = after
		if decides(step) {
			b, r := w.regret(step, after)
			v.Bottleneck, v.Regret = append(v.Bottleneck, b), append(v.Regret, r)
		}
	}
	for _, from := range w.events() {
		goal, err := w.goal(balancer, from, cuts[from-1])
		if err != nil {
			return v, err
		}
		v.Answers = append(v.Answers, w.answer(goal, from, cuts))
	}
	return v, nil
}

// gains reports whether a move after a step is worth it if nothing changes.
func (w *world) gains(step int, before, after partition.Partition) bool {
	truth, slow := w.truth(step), w.slow(step)
	return bottleneck(truth, after, slow) <= (1-worth)*bottleneck(truth, before, slow) ||
		w.seconds(step, after) <= (1-worth)*w.seconds(step, before)
}

// seconds returns what a step truly takes at some cuts.
func (w *world) seconds(step int, cuts partition.Partition) float64 {
	return sim.Makespan(w.schedule, stageCosts(w.truth(step), cuts, w.slow(step)))
}

// decides reports whether a decision follows a step: one in every so many, also
// where the policy says itself when it decides.
func decides(step int) bool { return (step+1)%every == 0 }

// regret returns the true bottleneck of some cuts at a step over the smallest, and
// what is to be regretted of that: where microbatches are few, filling and draining
// can make a step with a larger bottleneck the faster one.
func (w *world) regret(step int, cuts partition.Partition) (largest, regret float64) {
	truth, slow := w.truth(step), w.slow(step)
	best, least := optimum(truth, w.Stages, slow)
	if largest = bottleneck(truth, cuts, slow) / least; largest == 1 {
		return largest, largest
	}
	return largest, max(1, min(largest, w.seconds(step, cuts)/w.seconds(step, best)))
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

// answer returns how many decisions it takes from a change on until a step is near a
// goal: none if it still is.
func (w *world) answer(goal float64, from int, cuts []partition.Partition) int {
	good := func(step int, cuts partition.Partition) bool {
		return w.seconds(step, cuts) <= answered*goal
	}
	if good(from, cuts[from-1]) {
		return 0
	}
	decisions := 0
	for step := from; step < w.Steps && !(step > from && w.changes(step)); step++ {
		if !decides(step) {
			continue
		}
		decisions++
		if good(step, cuts[step]) {
			break
		}
	}
	return decisions
}

// goal returns what a step takes at the cuts that a balancer would choose after a
// change if it knew the truth: those of the smallest bottleneck, or those in which
// diffusion ends.
func (w *world) goal(balancer string, step int, cuts partition.Partition) (float64, error) {
	truth, slow := w.truth(step), w.slow(step)
	if balancer != diffusion {
		best, _ := optimum(truth, w.Stages, slow)
		return w.seconds(step, best), nil
	}
	p, err := w.planner(balancer, "auto")
	if err != nil {
		return 0, err
	}
	t := cost.Table{Layers: slices.Clone(w.phase(step).layers), Slow: slow}
	for l := range t.Layers {
		t.Layers[l] = t.Layers[l].With(truth[l])
	}
	b := newest{planner: p, settings: w.settings(balancer, "auto").Balance}
	own, err := b.choose(t, balance.New(t, balance.ByTime, w.Stages, nil, 0), cuts)
	if err != nil {
		return 0, err
	}
	return w.seconds(step, own), nil
}
