package main

import (
	"dynmo/src/cost"
	"dynmo/src/lab/study"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// simAnswer is the output of dynmo simulate. Times are in seconds.
type simAnswer struct {
	Schema      int              `json:"schema"`
	Clock       string           `json:"clock"` // sim
	Costs       string           `json:"costs_clock"`
	Network     string           `json:"assumed_network,omitempty"` // nodes of the GPU of the costs, if no network was named
	Dynamic     string           `json:"dynamic,omitempty"`         // kind that generated the costs
	Assumes     []string         `json:"assumes"`                   // settings of simulated runs, in the form of --set
	Sampled     *simSampled      `json:"sampled,omitempty"`         // absent if every step is simulated
	Ranks       int              `json:"ranks"`
	Segments    []simSegment     `json:"stretches"`
	Seconds     float64          `json:"seconds"`
	Tokens      float64          `json:"tokens_per_second"`
	Samples     float64          `json:"samples_per_second"` // sequences
	Moving      float64          `json:"moving_seconds"`
	Measuring   float64          `json:"measuring_seconds"`
	Deciding    float64          `json:"deciding_seconds"`
	RankSeconds float64          `json:"rank_seconds"`
	Packing     *verdict.Packing `json:"packing,omitempty"`    // absent if the model was not packed
	NotPacked   string           `json:"not_packed,omitempty"` // why the last attempt to pack packed nothing
	Speedup     float64          `json:"speedup"`              // over the better baseline, or over the first cuts if no baseline fits
	Over        string           `json:"speedup_over"`         // balance_kind of that baseline; "first" for the first cuts
	Ceiling     float64          `json:"ceiling,omitempty"`    // of the speedup, see study.Run.Ceiling; absent if unknown
	First       simBaseline      `json:"first_cuts"`           // the same work on the run's first cuts
	Baselines   []simBaseline    `json:"baselines"`
	Better      *simBaseline     `json:"better_baseline,omitempty"` // the faster one; absent if none fits
	Dense       simDense         `json:"dense"`
	Head        simHead          `json:"head"`
	Stayed      string           `json:"stayed,omitempty"` // why no layer moved; absent if layers moved
	Replayed    []simReplay      `json:"replayed,omitempty"`
}

// simBaseline is the same work on static cuts.
type simBaseline struct {
	Kind    string  `json:"balance_kind"`
	Cuts    string  `json:"cuts_of"`
	Seconds float64 `json:"seconds,omitempty"`
	Tokens  float64 `json:"tokens_per_second,omitempty"`
	Samples float64 `json:"samples_per_second,omitempty"`
	Speedup float64 `json:"speedup,omitempty"`
	Ceiling float64 `json:"ceiling,omitempty"`
	Error   string  `json:"error,omitempty"` // why there are no such cuts and no figures
}

// simDense is a step of the model of the first costs, with the best cuts for it.
type simDense struct {
	Step    float64 `json:"step_seconds"`
	Tokens  float64 `json:"tokens_per_second"`
	Samples float64 `json:"samples_per_second"`
	Speedup float64 `json:"speedup"` // of the run, relative to such steps
}

// simHead is the influence of the head on the answer.
type simHead struct {
	Layers int       `json:"layers"`
	Share  float64   `json:"share"`           // of the chain's seconds, in the first costs
	Small  *simSmall `json:"small,omitempty"` // absent if no layer was to move
}

// simSmall is the same run with a smaller head.
type simSmall struct {
	Times   float64 `json:"times"`             // factor on the head's seconds
	Speedup float64 `json:"speedup"`           // over the better of the two baselines
	Ceiling float64 `json:"ceiling,omitempty"` // of that speedup
	OfGain  float64 `json:"share_of_gain"`     // lost share of the gain with the whole head
}

// simSampled describes which steps were simulated.
type simSampled struct {
	From     int     `json:"from_step"`
	Interval int     `json:"interval"` // changes of the model per simulated change
	Error    float64 `json:"error"`    // standard error of the mean step time, relative
}

// simSegment is a range of steps of the run that are alike.
type simSegment struct {
	Step      int        `json:"step"`
	Steps     int        `json:"steps"`
	Change    string     `json:"change,omitempty"` // of the model, before the first step
	Stages    int        `json:"stages"`
	Ranks     int        `json:"ranks"`
	Nodes     int        `json:"nodes"`
	Schedule  string     `json:"schedule"`
	Cuts      []int      `json:"cuts"`
	Seconds   float64    `json:"step_seconds"`
	Exposed   float64    `json:"allreduce_seconds"` // not hidden by work
	Makespan  float64    `json:"makespan"`
	Bound     float64    `json:"lower_bound"`
	Bubble    float64    `json:"bubble_ratio"`
	Idle      trace.Idle `json:"idle_seconds"` // means over the stages
	Moves     int        `json:"moves"`        // before the first step
	Moved     int64      `json:"moved_bytes"`
	Placed    bool       `json:"pieces_moved,omitempty"` // pieces of layers or their copies moved before the first step
	Copied    int64      `json:"copied_bytes,omitempty"` // of copies in a step, on the busiest rank
	Moving    float64    `json:"moving_seconds"`
	Measuring float64    `json:"measuring_seconds"`
	Deciding  float64    `json:"deciding_seconds"`
}

// simReplay compares a measured phase with its simulation.
type simReplay struct {
	Step      int     `json:"step"`
	Steps     int     `json:"steps"`
	Measured  float64 `json:"measured"`
	Predicted float64 `json:"predicted"`
	Error     float64 `json:"error"`
	Ahead     float64 `json:"ahead,omitempty"` // predicted before layers moved
}

// runsOf is how many runs an answer mostly needs: the run and two baselines, and these again with a
// small head.
const runsOf = 6

// stepsIn returns how many steps a series has.
func stepsIn(series cost.Series) int {
	n := 0
	for _, s := range series {
		n += max(1, s.Steps)
	}
	return n
}

// stepsOf returns a function that advances a bar by a number of steps. total is the number of all
// steps.
func stepsOf[N int | int64](bar *record.Bar, total N) func(N) {
	var done N
	return func(steps N) {
		done += steps
		bar.Show(int64(done), int64(total))
	}
}

// simSchema is the number of the form of simAnswer in JSON.
const simSchema = 2

// simulated simulates a series with the settings' balancer, and with static cuts. kind is the
// dynamism that generated the series; "": none. records receives the record of the run.
func simulated(series cost.Series, o study.Options, kind string, records *simRecords) (simAnswer, error) {
	if o.Observe = records; records.Run == nil {
		o.Config.Run.TraceSteps = 0
	}
	run, err := study.Ask(series, o)
	if err != nil {
		return simAnswer{}, err
	}
	l := o.Config.Parallel
	samples := float64(l.Replicas * l.Microbatches * l.MicrobatchSize) // sequences of a step
	tokens, steps := samples*float64(o.Config.Model.Sequence), float64(run.Steps())
	a := simAnswer{
		Schema: simSchema, Clock: "sim", Dynamic: kind, Ranks: l.Stages * l.Replicas, Assumes: o.Config.Assumptions(kind),
		Seconds: run.Seconds, Tokens: tokens * steps / run.Seconds, Samples: samples * steps / run.Seconds,
		Moving: run.Moving, Measuring: run.Measuring, Deciding: run.Deciding, RankSeconds: run.RankSeconds,
		Dense: simDense{run.Dense.Seconds, tokens / run.Dense.Seconds, samples / run.Dense.Seconds, steps * run.Dense.Seconds / run.Seconds},
		Head:  simHead{Layers: run.Head.Layers, Share: run.Head.Share},
	}
	baseline := func(kind, cuts string, r study.Run) simBaseline {
		return simBaseline{
			Kind: kind, Cuts: cuts, Seconds: r.Seconds, Tokens: tokens * steps / r.Seconds, Samples: samples * steps / r.Seconds,
			Speedup: r.Seconds / run.Seconds, Ceiling: study.CeilingOver(r, run.Run),
		}
	}
	a.First = baseline("first", "the run's first", run.First)
	for _, b := range run.Others {
		if b.Err != nil {
			a.Baselines = append(a.Baselines, simBaseline{Kind: b.Kind, Cuts: b.Cuts, Error: b.Err.Error()})
		} else {
			a.Baselines = append(a.Baselines, baseline(b.Kind, b.Cuts, b.Run))
		}
	}
	over := &a.First
	if run.Better >= 0 {
		a.Better = &a.Baselines[run.Better]
		over = a.Better
		if s := run.Head.Small; s != nil {
			a.Head.Small = &simSmall{min(study.SmallHead, o.Config.Simulate.Head), s.Speedup, s.Ceiling, run.Head.OfGain(a.Better.Speedup)}
		}
	}
	a.Speedup, a.Over, a.Ceiling = over.Speedup, over.Kind, over.Ceiling
	if s := o.Sampling; s.Interval > 1 {
		a.Sampled = &simSampled{s.From, s.Interval, run.Error(s)}
	}
	tally := &records.tally
	a.Packing, a.NotPacked, a.Stayed = tally.Summary(verdict.Finished).Packing, tally.Unpacked(), tally.Stayed(o.Config)
	for _, s := range run.Segments {
		a.Segments = append(a.Segments, segment(s))
	}
	return a, nil
}

// segment describes a segment of a run.
func segment(s study.Segment) simSegment {
	idle := s.Idle
	idle.Balancing = s.Balancing() / float64(s.Steps)
	return simSegment{
		Step: s.Step, Steps: s.Steps, Change: s.Change, Stages: s.Plan.Stages(), Ranks: s.Plan.Mesh.Size(), Nodes: s.Nodes, Schedule: string(s.Plan.Schedule.Kind),
		Cuts: s.Plan.Cuts, Seconds: s.Seconds, Exposed: s.Exposed, Makespan: s.Makespan,
		Bound: s.Plan.LowerBound, Bubble: 1 - s.Idle.Busy/s.Makespan,
		Idle: idle, Moves: s.Moves, Moved: s.Moved, Placed: s.Placed != nil, Copied: s.Copied, Moving: s.Moving, Measuring: s.Measuring, Deciding: s.Deciding,
	}
}

// steps returns how many steps the run has.
func (a simAnswer) steps() int {
	n := 0
	for _, s := range a.Segments {
		n += s.Steps
	}
	return n
}

// moves returns how often layers moved, and how many bytes of one replica moved.
func (a simAnswer) moves() (times int, bytes int64) {
	for _, s := range a.Segments {
		times, bytes = times+s.Moves, bytes+s.Moved
	}
	return times, bytes
}

// copies returns after how many steps pieces of layers moved, and the mean bytes of copies in a
// step.
func (a simAnswer) copies() (placed int, bytes int64) {
	for _, s := range a.Segments {
		bytes += s.Copied * int64(s.Steps)
		if s.Placed {
			placed++
		}
	}
	return placed, bytes / int64(max(1, a.steps()))
}

// replayed compares the measured phases of a series with their simulation.
func replayed(series record.Series) []simReplay {
	var list []simReplay
	for _, r := range study.Replay(series) {
		list = append(list, simReplay{r.Step, r.Steps, r.Measured, r.Predicted, r.Error(), r.Ahead})
	}
	return list
}
