package decisions

import (
	"runtime"
	"slices"
	"sync"
)

// Options say which runs are made.
type Options struct {
	Seeds int    // of every family, noise and scenario
	Every string // balance.every
	Size
	Noises, Families []string // the only ones that are tried; none: all
	// Progress, if not nil, is called after each of all runs, by one goroutine at a time.
	Progress func(done, all int)
}

// Default returns the options that the reaches are meant for: 100 decisions a run.
func Default() Options {
	return Options{Seeds: 20, Every: "5", Size: Size{Stages: 8, Microbatches: 16, Steps: 100 * every}}
}

// diffusion is the balancer that knows stages and their neighbours only.
const diffusion = "diffusion"

// Balancers are the kinds that decisions are tried with.
var Balancers = []string{"partition", diffusion}

// Run is a balancer's run of a case under a policy.
type Run struct {
	Case
	Balancer, Policy string
	Verdict
}

// Check is a run that is made both simulated and on ranks.
type Check struct {
	Case
	Balancer string
	Differ   int // steps after which the cuts differ
}

// scenarios are what is tried under a noise besides a constant truth: what really
// changes must be seen through each kind of noise of 20 %.
var scenarios = map[string][]Scenario{
	"none": {Changes, SlowRank}, "one-sided-20": {Changes, SlowRank}, "recorded": {Changes, SlowRank},
	"bursts": {Changes}, "symmetric-20": {Changes},
}

// tries reports whether a case is to be tried.
func (o Options) tries(c Case) bool {
	among := func(list []string, name string) bool { return len(list) == 0 || slices.Contains(list, name) }
	return among(o.Noises, c.Noise.Name) && among(o.Families, c.Family)
}

// cases returns every case that is to be tried.
func (o Options) cases() []Case {
	var list []Case
	for _, noise := range Noises {
		for _, scenario := range append([]Scenario{Constant}, scenarios[noise.Name]...) {
			for _, f := range families {
				for seed := range uint64(o.Seeds) {
					if c := (Case{f.name, noise, scenario, seed, o.Size}); o.tries(c) {
						list = append(list, c)
					}
				}
			}
		}
	}
	return list
}

// checkedSteps is how long runs are that are made on ranks too, where a step takes
// fifty times as long: two changes, and a slow rank for half of them.
const checkedSteps = 200

// checks returns the runs that are made on ranks too: one for each noise and
// balancer, in which all families and scenarios occur.
func (o Options) checks() []Check {
	o.Steps = min(o.Steps, checkedSteps)
	all := []Scenario{Constant, Changes, SlowRank}
	var list []Check
	for k := range len(Noises) * len(Balancers) {
		c := Case{families[k%len(families)].name, Noises[k%len(Noises)], all[k%len(all)], uint64(k), o.Size}
		if o.tries(c) {
			list = append(list, Check{Case: c, Balancer: Balancers[k/len(Noises)]})
		}
	}
	return list
}

// Try makes all runs and checks, several at a time.
func Try(o Options) ([]Run, []Check, error) {
	all, again := o.cases(), o.checks()
	runs := make([][]Run, len(all))
	err := parallel(len(again)+len(all), o.Progress, func(i int) (err error) {
		if i < len(again) { // which take longest
			again[i].Differ, err = again[i].differ(o.Every)
			return err
		}
		i -= len(again)
		runs[i], err = all[i].runs(o.Every)
		return err
	})
	return slices.Concat(runs...), again, err
}

// runs simulates a case under every policy with every balancer.
func (c Case) runs(every string) ([]Run, error) {
	w, err := newWorld(c)
	if err != nil {
		return nil, err
	}
	var list []*competitor
	var runs []Run
	for _, balancer := range Balancers {
		for _, policy := range Policies {
			x, err := w.newCompetitor(balancer, every, policy)
			if err != nil {
				return nil, err
			}
			list, runs = append(list, x), append(runs, Run{Case: c, Balancer: balancer, Policy: policy.Name})
		}
	}
	if err := w.simulate(list); err != nil {
		return nil, err
	}
	for i, x := range list {
		if runs[i].Verdict, err = w.judge(runs[i].Balancer, x.first, x.cuts); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// differ makes a run of the present policy in both ways and returns after how many
// steps the cuts differ.
func (c Check) differ(every string) (int, error) {
	w, err := newWorld(c.Case)
	if err != nil {
		return 0, err
	}
	x, err := w.newCompetitor(c.Balancer, every, present)
	if err != nil {
		return 0, err
	}
	if err := w.simulate([]*competitor{x}); err != nil {
		return 0, err
	}
	cuts, err := w.onRanks(c.Balancer, every, present)
	n := 0
	for step := range cuts {
		if !cuts[step].Equal(x.cuts[step]) {
			n++
		}
	}
	return n, err
}

// parallel calls work for 0 to n-1, as many at a time as there are cores, until one
// fails. It returns the error of the first that did.
func parallel(n int, progress func(done, all int), work func(int) error) error {
	var mu sync.Mutex
	var first error
	next, done := 0, 0
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= n && first == nil
	}
	end := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if first == nil {
			first = err
		}
		if done++; progress != nil {
			progress(done, n)
		}
	}
	var workers sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				end(work(i))
			}
		})
	}
	workers.Wait()
	return first
}
