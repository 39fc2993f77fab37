package verdict

import (
	"errors"
	"math"
	"slices"

	"dynmo/src/layout"
	"dynmo/src/plan/search"
	"dynmo/src/record"
)

// Result says how much faster a run was because layers moved. Three runs are simulated on the recorded
// costs of the layers: one in a static layout, one in the layouts that the run used, and one in the
// best layout of each phase. Seconds are those of all steps together, simulated. They are less than the
// measured seconds on a disturbed machine: a layer's cost is the mean of the faster half of its
// samples.
//
// With phases i of n_i steps,
//
//	Static = Σ n_i · static_i
//	Used   = Σ n_i · used_i + Price
//	Best   = Σ n_i · min(static_i, used_i, planned_i)
//
// Here static_i, used_i and planned_i are seconds of a step in phase i. They are in the static layout,
// in the layout used, and in the layout that the search finds for the phase's costs. Best counts no
// seconds for moving and deciding. record.Metrics has the headroom of single steps.
type Result struct {
	Clock   string  `json:"clock"` // clock that measured the costs: wall, virtual or sim; or estimated
	Steps   int     `json:"steps"`
	Static  float64 `json:"static_seconds"`    // seconds in the static layout (see Measure and Compare)
	Used    float64 `json:"used_seconds"`      // seconds in the layouts that the run used, and Price
	Best    float64 `json:"best_seconds"`      // seconds in the best of three layouts for each phase
	Price   float64 `json:"balancing_seconds"` // recorded seconds of measuring, deciding and moving; 0 if the settings never change a layout
	Speedup float64 `json:"speedup"`           // Static / Used
	Ceiling float64 `json:"ceiling"`           // Static / Best
	Low     float64 `json:"low"`               // 5th percentile of Speedup over the draws
	High    float64 `json:"high"`              // 95th percentile of Speedup over the draws
	Draws   int     `json:"draws"`             // number of times that samples were drawn anew (bootstrap); 0: no samples, Low = High = Speedup
	Moved   bool    `json:"moved"`             // whether the layout ever changed
	Doubt   string  `json:"doubt,omitempty"`   // text for people that says why Speedup should not be trusted; "": no reason; the caller sets it
}

// LeastGain is the least difference of Speedup from 1 (0.5 %) that counts. Costs of layers are never
// known more exactly. IsNoise uses it.
const LeastGain = 0.005

// IsNoise reports whether Used and Static may differ by noise only: 1 lies between Low and High, or
// Speedup differs from 1 by less than LeastGain.
func (w Result) IsNoise() bool {
	return w.Draws > 0 && w.Low <= 1 && 1 <= w.High || math.Abs(w.Speedup-1) < LeastGain
}

// mostPhases is the most phases of a run that are simulated.
const mostPhases = 256

// ErrNotRun says that no phase of a series was recorded by a run: for example costs that were
// estimated or written by hand.
var ErrNotRun = errors.New("the costs are of no run")

// Measure returns the Result of one run. The static layout is that of the run's first phase. Where a run
// was resumed on other numbers of stages, replicas or microbatches, it is the first layout since then.
// p is the problem of the settings that the run had. The only error is ErrNotRun.
func Measure(p *search.Problem, series record.Series) (Result, error) {
	list := boundedSegments(series)
	if len(list) == 0 {
		return Result{}, ErrNotRun
	}
	return evaluate([]compared{{p, list, staticSegments(list)}})[0], nil
}

// Phase is the simulated seconds of a step of a phase in three layouts (see Result).
type Phase struct {
	Step               int // the first step of the phase
	Static, Used, Best float64
}

// Phases returns the phases of a run that Measure sums up; none if ErrNotRun.
func Phases(p *search.Problem, series record.Series) []Phase {
	t := trial{costs: measuredCosts}
	used := boundedSegments(series)
	best, list := bestSeconds(p, &t, used), make([]Phase, len(used))
	for i, s := range staticSegments(used) {
		steps := float64(s.steps)
		list[i] = Phase{s.first, t.seconds(s) / steps, t.seconds(used[i]) / steps, best[i] / steps}
	}
	return list
}

// boundedSegments returns the segments of a run alone, at most mostPhases.
func boundedSegments(series record.Series) []segment {
	for len(series) > mostPhases {
		series = series.Halved()
	}
	list := segments(series)
	if len(list) > 0 {
		agreeOnSpeeds([][]segment{list})
	}
	return list
}

// segment is consecutive steps of a run with one layout and one table of costs.
type segment struct {
	first     int // number of the first step
	steps     int
	layout    layout.Layout
	stay      layout.Layout  // the layout of this segment if no layer had ever moved
	moved     bool           // layout differs from stay
	run       *record.Course // has the network
	costs     *sampled
	joined    int     // microbatches of the costs that make up one microbatch of the layout
	rest      float64 // seconds of a step outside its makespan
	balancing float64 // seconds after the steps
}

// segments returns the phases of a series that a run recorded.
func segments(series record.Series) []segment {
	var list []segment
	costs := series.Even()
	for i, p := range series {
		if p.Run == nil || p.Steps == 0 {
			continue
		}
		stay := p.Run.Layout
		if n := len(list); n > 0 {
			stay = p.Run.Stay(list[n-1].stay)
		}
		list = append(list, segment{
			first: p.Step, steps: p.Steps, layout: p.Run.Layout, stay: stay, moved: !stay.Equal(p.Run.Layout),
			run: p.Run, costs: newSampled(costs[i], p.Samples), joined: stay.Schedule.Microbatches / p.Run.Layout.Schedule.Microbatches, rest: p.Run.Rest, balancing: p.Run.Balancing,
		})
	}
	return list
}

// staticSegments returns the segments as if no layer had ever moved.
func staticSegments(list []segment) []segment {
	list = slices.Clone(list)
	for i, s := range list {
		list[i].layout, list[i].joined = s.stay, 1
	}
	return list
}

// compared is a run and a static run on the same costs.
type compared struct {
	problem      *search.Problem
	used, static []segment
}

// evaluate returns the result of every run.
func evaluate(runs []compared) []Result {
	t := trial{costs: measuredCosts}
	list := make([]Result, len(runs))
	for i, r := range runs {
		w, price := Result{Clock: r.used[0].costs.Clock}, 0.0
		for _, s := range r.used {
			w.Steps += s.steps
			price += s.balancing
			w.Moved = w.Moved || s.moved
		}
		if w.Moved || decides(r.problem) {
			w.Price = price
		}
		w.Static, w.Used = t.total(r.static), w.Price+t.total(r.used)
		for _, seconds := range bestSeconds(r.problem, &t, r.used) {
			w.Best += seconds
		}
		w.Speedup, w.Ceiling = w.Static/w.Used, w.Static/w.Best
		w.Low, w.High = w.Speedup, w.Speedup
		list[i] = w
	}
	addPercentiles(runs, list)
	return list
}

// decides reports whether the settings let a run change its layout. Other runs measure for
// their records only.
func decides(p *search.Problem) bool {
	return p.Config.Balance.Moves() || p.Config.Packs() || p.Adapts()
}

// bestSeconds returns the seconds of each segment in the fastest of three layouts: the
// best that a search finds, the static one and the one used.
func bestSeconds(p *search.Problem, t *trial, used []segment) (list []float64) {
	var found *layout.Layout
	for i, s := range used {
		if i == 0 || s.costs != used[i-1].costs || s.stay.Stages() != used[i-1].stay.Stages() {
			found = bestLayout(p, s.costs, s.stay.Stages())
		}
		least := t.seconds(s)
		for _, l := range []*layout.Layout{&s.stay, found} {
			if l != nil && l.Schedule.Microbatches == s.stay.Schedule.Microbatches { // another number after a resume on other replicas
				s.layout, s.joined = *l, 1
				least = min(least, t.seconds(s))
			}
		}
		list = append(list, least)
	}
	return list
}

// bestLayout returns the best layout that a search finds for costs, nil if no layout fits the memory.
func bestLayout(p *search.Problem, costs *sampled, stages int) *layout.Layout {
	p, err := p.Resize(stages, p.Microbatches)
	if err != nil {
		return nil
	}
	s := p.Step(costs.Mean().Fitted(stages), layout.Layout{})
	l, err := s.BestInMap(s.Map)
	if err != nil {
		return nil
	}
	return &l
}
