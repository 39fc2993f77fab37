package dynamism

import (
	"errors"
	"fmt"
	"sync"

	"dynmo/src/config"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// Train trains under some settings, tells an observer, and returns the hash of the final
// weights.
type Train func(config.Config, record.Observer) (hash string, err error)

// Run is one run of a case.
type Run struct {
	Name    string // of its balancer; "dense" of the model without the dynamism
	Static  bool   // layers never move
	Metrics []record.Metrics
	Moves   int
	Hash    string // of the final weights
}

// dense is the run that total speedups are over: the model without the dynamism, on cuts
// by blocks.
const dense = "dense"

// Measured is a case and its runs: the dense one, the static ones, those that balance.
type Measured struct {
	Case
	Runs []Run
}

// balancers are those of the runs of a case.
var balancers = []config.Balance{
	{Kind: "uniform", By: "time"}, {Kind: "param", By: "time"},
	{Kind: "partition", By: "time"}, {Kind: "partition", By: "param"}, {Kind: "diffusion", By: "time"}, {Kind: "diffusion", By: "param"},
}

// Measure makes the runs of a case, of some steps each. The error is that of the first run that has one, or
// says that runs of the same work end with other weights.
func Measure(c Case, steps int, train Train) (Measured, error) {
	m := Measured{Case: c}
	settings := make([]config.Config, 1+len(balancers))
	var err error
	if settings[0], err = c.settings(steps, balancers[0], false); err != nil {
		return m, err
	}
	m.Runs = append(m.Runs, Run{Name: dense, Static: true})
	for i, b := range balancers {
		if settings[1+i], err = c.settings(steps, b, true); err != nil {
			return m, err
		}
		m.Runs = append(m.Runs, Run{Name: b.String(), Static: !b.Moves()})
	}
	errs := make([]error, len(m.Runs))
	turns := newTurns(len(m.Runs))
	var all sync.WaitGroup
	for i := range m.Runs {
		all.Go(func() {
			turns.await(i)
			defer turns.leave(i)
			r := &m.Runs[i]
			if r.Hash, errs[i] = train(settings[i], &observer{run: r, next: func() { turns.pass(i); turns.await(i) }}); errs[i] != nil {
				errs[i] = fmt.Errorf("%s, %s: %w", c.Kind, r.Name, errs[i])
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return m, err
	}
	for _, r := range m.Runs[2:] {
		if first := m.Runs[1]; r.Hash != first.Hash {
			return m, fmt.Errorf("%s: final weights %s on %s, %s on %s: want the same", c.Kind, r.Hash, r.Name, first.Hash, first.Name)
		}
	}
	return m, nil
}

// observer keeps the metrics of a run, and lets the other runs go on after each step.
type observer struct {
	run  *Run
	next func()
}

func (o *observer) Step(m record.Metrics) error {
	o.run.Metrics = append(o.run.Metrics, m)
	o.next()
	return nil
}

func (o *observer) Event(e record.Event) error {
	if e.Moved() {
		o.run.Moves++
	}
	return nil
}

func (*observer) Costs(profile.Phase) error { return nil }
func (*observer) Trace(trace.Step) error    { return nil }
func (*observer) Say(string)                {}

// turns lets one of several go on at a time, in their order.
type turns struct {
	lock    sync.Mutex
	changed *sync.Cond
	present []bool // who has not left
	turn    int
}

func newTurns(n int) *turns {
	t := &turns{present: make([]bool, n)}
	for i := range t.present {
		t.present[i] = true
	}
	t.changed = sync.NewCond(&t.lock)
	return t
}

// await waits for the turn of i.
func (t *turns) await(i int) {
	t.lock.Lock()
	defer t.lock.Unlock()
	for t.turn != i {
		t.changed.Wait()
	}
}

// pass gives the turn of i to the next who is present.
func (t *turns) pass(i int) {
	t.lock.Lock()
	defer t.lock.Unlock()
	for k := range t.present {
		if next := (i + 1 + k) % len(t.present); t.present[next] {
			t.turn = next
			break
		}
	}
	t.changed.Broadcast()
}

// leave passes the turn on for good.
func (t *turns) leave(i int) {
	t.lock.Lock()
	t.present[i] = false
	t.lock.Unlock()
	t.pass(i)
}
