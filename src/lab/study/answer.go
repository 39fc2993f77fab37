package study

import (
	"cmp"
	"sync"

	"dynmo/src/cost"
	"dynmo/src/plan/search"
)

// Answer is all that is said of a simulated run, on the same work.
type Answer struct {
	Run
	First  Run         // on the cuts that the run began with, which never move
	Others []Baseline  // on others' cuts, which never move
	Better int         // which of Others is the fastest; -1: none fits
	Dense  search.Plan // a step of the model of the first costs, at its best cuts
	Head   Head
}

// Head is what the end of the chain has to do with the answer: undivided, it can take as
// long as many blocks, and no cuts are then good that do not give it a stage of its own.
type Head struct {
	Layers int
	Share  float64 // of the seconds of the chain, by the first costs
	Small  *Small  // nil where no layer was to move
}

// Small is the same run with a head of SmallHead times its seconds.
type Small struct {
	Speedup float64 // over the better of the others, which is chosen anew
	Ceiling float64 // of that speedup, as Run.Ceiling says
}

// SmallHead is how many times the seconds that costs say of a head a small one takes:
// that of a vocabulary of 50,000 becomes one of 1,000.
const SmallHead = 0.02

// Ask simulates a series with the settings' balancer, without, and with a small head, on
// as many cores as there are.
func Ask(series cost.Series, o Options) (a Answer, err error) {
	o.Show = alone(o.Show)
	main := o
	o.Observe = nil // the record is that of the run, not of the runs that it is compared with
	err = together(
		func() (err error) { a.Run, err = Simulate(series, main); return err },
		func() (err error) { a.First, a.Others, err = baselines(series, o); return err },
		func() (err error) { a.Dense, err = Plan(series[0].Mean(), balanced(o)); return err },
		func() (err error) { a.Head, err = headOf(series, o); return err },
	)
	if err != nil {
		return a, err
	}
	a.Better = better(a.Others)
	return a, nil
}

// balanced returns the options with a balancer that moves layers.
func balanced(o Options) Options {
	if !o.Config.Balance.Moves() {
		o.Config.Balance.Kind = "partition"
	}
	return o
}

// together calls functions side by side and returns the error of the first in the list
// that has one.
func together(list ...func() error) error {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, f := range list {
		all.Go(func() { errs[i] = f() })
	}
	all.Wait()
	return cmp.Or(errs...)
}

// alone lets one goroutine at a time call show.
func alone(show func(int)) func(int) {
	if show == nil {
		return nil
	}
	var lock sync.Mutex
	return func(steps int) {
		lock.Lock()
		defer lock.Unlock()
		show(steps)
	}
}

// better returns which baseline is the fastest; -1 if none fits.
func better(list []Baseline) int {
	best := -1
	for i, b := range list {
		if b.Err == nil && (best < 0 || b.Seconds < list[best].Seconds) {
			best = i
		}
	}
	return best
}

// HeadShare returns the share of a chain's seconds that its last layers, the head, take.
func HeadShare(t cost.Table, layers int) float64 {
	head, sum := 0.0, 0.0
	for l, x := range t.Seconds() {
		sum += x
		if l >= len(t.Layers)-layers {
			head += x
		}
	}
	return head / sum
}

// headOf returns what the head has to do with a run of a series.
func headOf(series cost.Series, o Options) (Head, error) {
	h := Head{Layers: o.Config.Model.HeadShards}
	h.Share = HeadShare(series[0].Mean(), h.Layers)
	if !o.Config.Balance.Moves() {
		return h, nil
	}
	series = WithHead(series, h.Layers, min(1, SmallHead/o.Config.Simulate.Head)) // which holds simulate.head times its seconds
	var run Run
	var others []Baseline
	err := together(
		func() (err error) { run, err = Simulate(series, o); return err },
		func() (err error) { _, others, err = baselines(series, o); return err },
	)
	if err != nil {
		return h, err
	}
	if best := better(others); best >= 0 {
		h.Small = &Small{others[best].Seconds / run.Seconds, CeilingOver(others[best].Run, run)}
	}
	return h, nil
}

// CeilingOver returns the ceiling of the speedup over a static run: as estimated, and at
// least what a run has reached; 0 where it is not known.
func CeilingOver(static, reached Run) float64 {
	if c := static.Ceiling(); c > 0 {
		return max(c, static.Seconds/reached.Seconds)
	}
	return 0
}

// OfGain returns the share of a gain over the better static cuts that a small head takes
// away, from 0 to 1; 0 where there is no gain.
func (h Head) OfGain(speedup float64) float64 {
	if h.Small == nil || speedup <= 1 {
		return 0
	}
	return max(0, 1-max(0, h.Small.Speedup-1)/(speedup-1))
}
