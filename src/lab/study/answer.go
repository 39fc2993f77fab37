package study

import (
	"cmp"
	"sync"

	"dynmo/src/cost"
	"dynmo/src/lab/verdict"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan/search"
)

// schema is the number of the form of an Answer in JSON.
const schema = 3

// Answer is all that is said of a simulated run, on the same work. Times are in seconds.
type Answer struct {
	Run         *Run             `json:"-"`
	Schema      int              `json:"schema"`
	Clock       string           `json:"clock"` // sim
	Costs       string           `json:"costs_clock"`
	Network     string           `json:"assumed_network,omitempty"` // if no network was named: the GPU of the costs, whose nodes are taken; or "recorded", that of the simulated run of the costs
	Dynamic     string           `json:"dynamic,omitempty"`         // kind that generated the costs
	Assumes     []string         `json:"assumes"`                   // settings of simulated runs, in the form of --set
	Sampled     *Sampled         `json:"sampled,omitempty"`         // absent if every step is simulated
	Ranks       int              `json:"ranks"`
	Segments    []Segment        `json:"segments"`
	Steps       int              `json:"steps"`
	Moves       int              `json:"moves"` // of layers
	Moved       int64            `json:"moved_bytes"`
	Seconds     float64          `json:"seconds"`
	Tokens      float64          `json:"tokens_per_second"`
	Samples     float64          `json:"samples_per_second"` // sequences
	Moving      float64          `json:"moving_seconds"`
	Measuring   float64          `json:"measuring_seconds"`
	Deciding    float64          `json:"deciding_seconds"`
	RankSeconds float64          `json:"rank_seconds"`              // of every rank that holds layers, added up
	Packing     *verdict.Packing `json:"packing,omitempty"`         // absent if the model was not packed
	NotPacked   string           `json:"not_packed,omitempty"`      // why the last attempt to pack packed nothing
	Speedup     float64          `json:"speedup"`                   // over the better baseline, or over the first cuts if no baseline fits
	Over        string           `json:"speedup_over"`              // Kind of that baseline
	Ceiling     float64          `json:"ceiling,omitempty"`         // of the speedup; absent if unknown
	First       Baseline         `json:"first_cuts"`                // on the cuts that the run began with
	Baselines   []Baseline       `json:"baselines"`                 // on others' cuts
	Better      *Baseline        `json:"better_baseline,omitempty"` // the faster one; absent if none fits
	Dense       Dense            `json:"dense"`
	Head        Head             `json:"head"`
	Weightless  bool             `json:"costs_without_bytes,omitempty"` // no layer has bytes: moves take no time, and memory is not checked
	Unchanged   bool             `json:"unchanged,omitempty"`           // --dynamic changes no layer's seconds in any step
	Stayed      string           `json:"stayed,omitempty"`              // why no layer moved; absent if layers moved
	Replayed    []Replayed       `json:"replayed,omitempty"`
}

// Sampled says which steps were simulated.
type Sampled struct {
	Sampling
	Error float64 `json:"error"` // standard error of the mean step time, relative
}

// Baseline is the same work on cuts that never move.
type Baseline struct {
	Kind    string  `json:"balance_kind"` // "first" for the run's own first cuts
	Cuts    string  `json:"cuts_of"`      // whose cuts these are
	Seconds float64 `json:"seconds,omitempty"`
	Tokens  float64 `json:"tokens_per_second,omitempty"`
	Samples float64 `json:"samples_per_second,omitempty"`
	Speedup float64 `json:"speedup,omitempty"` // of the run, over these cuts
	Ceiling float64 `json:"ceiling,omitempty"` // of the speedup, see CeilingOver; absent if unknown
	Error   string  `json:"error,omitempty"`   // why there are no such cuts and no figures

	run *Run
	err error
}

// Dense is a step of the model of the first costs, with the best cuts for it.
type Dense struct {
	Step    float64 `json:"step_seconds"`
	Tokens  float64 `json:"tokens_per_second"`
	Samples float64 `json:"samples_per_second"`
	Speedup float64 `json:"speedup"` // of the run, relative to such steps
}

// Head is what the end of the chain has to do with the answer: undivided, it can take as
// long as many blocks, and no cuts are then good that do not give it a stage of its own.
type Head struct {
	Layers int     `json:"layers"`
	Share  float64 `json:"share"`           // of the seconds of the chain, by the first costs
	Small  *Small  `json:"small,omitempty"` // absent if no layer was to move
}

// Small is the same run with a smaller head.
type Small struct {
	Times   float64 `json:"times"`             // factor on the head's seconds
	Speedup float64 `json:"speedup"`           // over the better of the others, which is chosen anew
	Ceiling float64 `json:"ceiling,omitempty"` // of that speedup
	OfGain  float64 `json:"share_of_gain"`     // lost share of the gain with the whole head
}

// SmallHead is how many times the seconds that costs say of a head a small one takes:
// that of a vocabulary of 50,000 becomes one of 1,000.
const SmallHead = 0.02

// Ask simulates a series with the settings' balancer, without, and with a small head, on
// as many cores as there are. With an error, only Run is set.
func Ask(series cost.Series, o Options) (a Answer, err error) {
	o.Show = alone(o.Show)
	main := o
	o.Observe, o.Config.Run.TraceSteps = nil, 0 // the record is that of the run, not of the runs that it is compared with
	var step search.Plan
	err = together(
		func() (err error) { a.Run, err = Simulate(series, main); return err },
		func() (err error) { a.First, a.Baselines, err = baselines(series, o); return err },
		func() (err error) { step, err = Plan(series[0].Mean(), balanced(o)); return err },
		func() (err error) { a.Head, err = headOf(series, o); return err },
	)
	if err != nil {
		return a, err
	}
	c, run := o.Config, a.Run
	samples := float64(c.Parallel.Replicas * c.Parallel.Microbatches * c.Parallel.MicrobatchSize) // sequences of a step
	tokens, steps := samples*float64(c.Model.Sequence), float64(run.Steps)
	a.Schema, a.Clock, a.Ranks, a.Segments = schema, "sim", c.Parallel.Stages*c.Parallel.Replicas, run.Segments
	a.Weightless = series[0].Weightless()
	a.Steps, a.Moves, a.Moved = run.Steps, run.Moves, run.Moved
	a.Seconds, a.Tokens, a.Samples = run.Seconds, tokens*steps/run.Seconds, samples*steps/run.Seconds
	a.Moving, a.Measuring, a.Deciding, a.RankSeconds = run.Moving, run.Measuring, run.Deciding, run.RankSeconds
	a.Packing, a.NotPacked, a.Stayed = run.Tally.Packing(), run.Tally.Unpacked(), run.Tally.Stayed(c)
	a.Dense = Dense{step.Seconds, tokens / step.Seconds, samples / step.Seconds, steps * step.Seconds / run.Seconds}
	a.First.compare(run, tokens, samples)
	for i := range a.Baselines {
		a.Baselines[i].compare(run, tokens, samples)
	}
	over := &a.First
	if a.Better = better(a.Baselines); a.Better != nil {
		over = a.Better
	} else {
		a.Head.Small = nil
	}
	a.Speedup, a.Over, a.Ceiling = over.Speedup, over.Kind, over.Ceiling
	if s := a.Head.Small; s != nil {
		s.setGain(a.Speedup)
	}
	if o.Sampling.Interval > 1 {
		a.Sampled = &Sampled{o.Sampling, run.Error(o.Sampling)}
	}
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

// baselines returns the same work on the cuts that others never move, by blocks and
// by parameters, as the paper compares with them; and on the first cuts of the
// settings. Errors are the settings'.
func baselines(series cost.Series, o Options) (first Baseline, others []Baseline, err error) {
	o.Static = true
	first = Baseline{Kind: "first", Cuts: "the run's first"}
	start, err := firstCuts(series, o)
	if err != nil {
		return first, nil, err
	}
	others = []Baseline{{Kind: "uniform", Cuts: "Megatron-LM's"}, {Kind: "param", Cuts: "DeepSpeed's"}}
	run := func(b *Baseline) func() error {
		other := o
		other.Config.Balance.Kind = b.Kind
		return func() error { b.run, b.err = Simulate(series, other); return nil }
	}
	_ = together(run(&others[0]), run(&others[1])) // errors are kept beside the runs
	for _, b := range others {
		if b.err == nil && start.Equal(b.run.Segments[0].Cuts) {
			first.run = b.run
		}
	}
	if first.run == nil {
		first.run, err = Simulate(series, o)
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

// compare sets the figures of a run beside the baseline. tokens and samples are those of a step.
func (b *Baseline) compare(run *Run, tokens, samples float64) {
	if b.err != nil {
		b.Error = b.err.Error()
		return
	}
	rate := float64(run.Steps) / b.run.Seconds
	b.Seconds, b.Tokens, b.Samples = b.run.Seconds, tokens*rate, samples*rate
	b.Speedup, b.Ceiling = b.run.Seconds/run.Seconds, CeilingOver(b.run, run)
}

// better returns the fastest baseline; nil if none fits.
func better(list []Baseline) (best *Baseline) {
	for i, b := range list {
		if b.err == nil && (best == nil || b.run.Seconds < best.run.Seconds) {
			best = &list[i]
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
	var run *Run
	var others []Baseline
	err := together(
		func() (err error) { run, err = Simulate(series, o); return err },
		func() (err error) { _, others, err = baselines(series, o); return err },
	)
	if err != nil {
		return h, err
	}
	if best := better(others); best != nil {
		h.Small = &Small{Times: min(SmallHead, o.Config.Simulate.Head), Speedup: best.run.Seconds / run.Seconds, Ceiling: CeilingOver(best.run, run)}
	}
	return h, nil
}

// CeilingOver returns the ceiling of the speedup over a static run: as estimated, and at
// least what a run has reached; 0 where it is not known.
func CeilingOver(static, reached *Run) float64 {
	if c := static.Ceiling(); c > 0 {
		return max(c, static.Seconds/reached.Seconds)
	}
	return 0
}

// setGain sets the share of a gain over the better static cuts that a small head takes away, from 0
// to 1; 0 where there is no gain.
func (s *Small) setGain(speedup float64) {
	if speedup > 1 {
		s.OfGain = max(0, 1-max(0, s.Speedup-1)/(speedup-1))
	}
}
