package study

import (
	"dynmo/src/cost"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan/search"
)

// Baseline is a run on cuts that never move.
type Baseline struct {
	Kind string // balance.kind
	Cuts string // whose cuts these are
	Run
	Err error // such cuts do not fit; there is no run then
}

// baselines returns the same work on the cuts that others never move, by blocks and
// by parameters, as the paper compares with them; and on the first cuts of the
// settings. Errors are the settings'.
func baselines(series cost.Series, o Options) (first Run, others []Baseline, err error) {
	o.Static = true
	start, err := firstCuts(series, o)
	if err != nil {
		return first, nil, err
	}
	others = []Baseline{{Kind: "uniform", Cuts: "Megatron-LM's"}, {Kind: "param", Cuts: "DeepSpeed's"}}
	run := func(b *Baseline) func() error {
		other := o
		other.Config.Balance.Kind = b.Kind
		return func() error { b.Run, b.Err = Simulate(series, other); return nil }
	}
	_ = together(run(&others[0]), run(&others[1])) // errors are kept beside the runs
	for _, b := range others {
		if b.Err == nil && start.Equal(b.Segments[0].Plan.Cuts) {
			first = b.Run
		}
	}
	if first.Segments == nil {
		first, err = Simulate(series, o)
	}
	return first, others, err
}

// firstCuts returns the cuts that a run begins with.
func firstCuts(series cost.Series, o Options) (partition.Partition, error) {
	p, err := search.New(o.Config, o.Network, o.Fixed)
	if err != nil {
		return nil, err
	}
	l, err := p.Step(series[0].Table, layout.Layout{}).FirstLayout()
	return l.Cuts, err
}

// Steps returns how many steps the run has.
func (r Run) Steps() int {
	n := 0
	for _, s := range r.Segments {
		n += s.Steps
	}
	return n
}

// Moves returns how often layers moved, and how many bytes of one replica.
func (r Run) Moves() (times int, bytes int64) {
	for _, s := range r.Segments {
		times += s.Moves
		bytes += s.Moved
	}
	return times, bytes
}
