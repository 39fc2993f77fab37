package profile

import (
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/partition"
)

// estimator keeps the seconds of layers in the steps since the model changed, and estimates
// the cost of each layer from them.
//
// Noise on shared machines is one-sided: a kernel is interrupted, never hurried. It was measured on
// two cores that four ranks share. Single passes of equal blocks have the quantiles .05, .25, .75
// and .95 at 0.86, 0.93, 1.10 and 1.36 of the median. With another process on the same cores .95 is
// at 2.3. Lower quartiles agree within 2 %, medians differ by up to 24 %. So the value of a step is
// the mean of the lower half of its microbatches. The estimate is the mean of the lower half of the
// steps. Values above the median have no weight. If noise is symmetric the minimum would be biased,
// and this estimate loses little. A step in which a rank was slower than its best pace does not
// count. After `patience` such steps the rank counts as slow.
type estimator struct {
	memory
	ranked [][3][]sample // by layer and pass: its seconds in the steps, ascending
	took   []float64     // by stage: the newest step's time over the time at the best pace of its ranks
	moved  []float64     // by stage: the time of its rank over that of the fastest, from layers that moved; nil: all are equal
}

// memory is the state of an estimator after the steps so far, as saved in checkpoints.
type memory struct {
	Speeds rankSpeeds       `json:"speeds"`
	Steps  []*observed      `json:"steps"` // the newest last
	Home   partition.Owners `json:"home"`
	Base   []passes         `json:"base"`            // by layer: the last estimate
	Pace   []float64        `json:"pace"`            // by stage: the present time of its rank over the time at its best pace
	Last   []float64        `json:"last"`            // by stage: the newest step's time over the time at the stage's pace
	Lines  []line           `json:"lines,omitempty"` // by layer; nil: all layers have worked on full microbatches
	Passes []float64        `json:"passes"`          // by stage: mean time of the counted steps over the estimate, if that may be temporary; else 1
	Doubts []float64        `json:"doubts"`          // by stage: the share by which its layers may cost less, if the stage was disturbed when their costs changed
	Proven []float64        `json:"proven"`          // by stage: lasting time of its rank over that of the fastest, from layers that moved
	Asked  int              `json:"asked"`           // number of calls of noise
	Spread [2]float64       `json:"spread"`          // relative deviation of a step's value: of a layer alone, of all layers of a stage in common; kept when the model changes
}

const (
	// window is the number of steps from which costs are estimated. recent is that number while
	// costs drift.
	window, recent = 64, 16
	// settled is the number of steps that a layer must run on a new stage. After them its costs on
	// the new stage replace those on the old stage.
	settled = 5
	// halfError is the deviation of the mean of the lower half of n normal values, divided by the
	// deviation of the mean of all n: 2·sqrt(Var(min(X, 0))).
	halfError = 1.168
	// leastSamples is the smallest number of microbatches whose spread estimates noise.
	leastSamples = 4
)

// observe takes the measurement of a step and the value of every layer, and returns the estimate.
// forget says that costs measured before this step are no longer valid.
func (e *estimator) observe(m cost.Measurement, values []value, owners partition.Owners, forget bool) cost.Estimate {
	if forget {
		e.doubt()
		e.Steps, e.ranked, e.Home, e.Base, e.Lines = nil, nil, nil, nil, nil
		e.Speeds.Changed()
	}
	if n := slices.Max(owners) + 1; len(e.Pace) != n { // at the start, or after a change of the number of stages
		*e = estimator{memory: memory{Spread: e.Spread}}
		e.Pace, e.Proven = slices.Repeat([]float64{1}, n), slices.Repeat([]float64{1}, n)
		e.Doubts = make([]float64, n)
	}
	if e.Home == nil {
		e.Home = slices.Clone(owners)
	}
	o := observe(values, owners)
	e.working(o, m.Samples, m.Work)
	e.add(o)
	e.keep(window)
	e.pacing()
	if e.drifts() {
		e.keep(recent)
	}
	e.settle(owners)
	return e.estimate(m.Table)
}

// settle updates the home stage of layers that have moved. The cost of a layer on its new stage
// counts once the layer has run there for `settled` steps. It counts at once if no cost on the old
// stage is known. The two costs of such layers give the speeds of the ranks.
func (e *estimator) settle(owners partition.Owners) {
	if slices.Equal(e.Home, owners) {
		return
	}
	next := slices.Clone(e.Home)
	before, after := make([]float64, len(owners)), make([]float64, len(owners))
	for l, stage := range owners {
		at, counted := e.lower(l, e.Home[l])
		now, n := e.lower(l, stage)
		before[l], after[l] = at.Seconds(), at.Seconds()
		if stage != e.Home[l] && (n >= settled || before[l] == 0) {
			next[l], after[l] = stage, now.Seconds()
			if counted == 0 || !e.steady(e.Home[l]) {
				before[l] = 0 // the old rank may have changed since then: the two times give no ratio
			}
			if !e.steady(stage) {
				e.Speeds.Forget(stage)
			}
		}
	}
	if slices.Equal(next, e.Home) {
		return
	}
	e.Speeds.Observe(before, e.Home)
	e.Speeds.Observe(after, next)
	e.Home = next
}

// estimate returns the estimate from the steps so far.
func (e *estimator) estimate(t cost.Table) cost.Estimate {
	stages := len(e.Pace)
	out := cost.Estimate{Table: t, Layer: make([]float64, len(e.Home)), Stage: make([]float64, stages), On: e.Home}
	out.Layers = slices.Clone(t.Layers)
	counts, most := make([]int, len(e.Home)), make([]int, stages)
	for l, home := range e.Home {
		var s cost.Stage
		s, counts[l] = e.lower(l, home)
		most[home] = max(most[home], counts[l])
		out.Layers[l] = t.Layers[l].WithSeconds(s)
	}
	for l, c := range out.Layers {
		// A base measured at a temporary pace would pass its error on to the next pace.
		if e.Passes[e.Home[l]] == 1 {
			e.Base[l] = passesOf(c.Stage())
		}
	}
	e.noise(out.Layers)
	// The layers of a stage share most of their steps. A layer with fewer steps does not share the
	// error of the common part.
	for l, n := range counts {
		few, many := errorOf(n), errorOf(most[e.Home[l]])
		out.Layer[l] = math.Hypot(e.Spread[0]*few, e.Spread[1]*math.Sqrt(few*few-many*many))
	}
	for s := range out.Stage {
		out.Stage[s] = e.Spread[1] * errorOf(most[s])
	}
	if slices.Max(e.Doubts) > 0 {
		out.Doubt = slices.Clone(e.Doubts)
	}
	slow := e.Speeds.Slow(stages)
	e.moved = slow
	e.prove(slow, out.Stage)
	unslow(out.Layers, e.Home, slow)
	e.share(out)
	for l := range out.Layers {
		if x := e.comes(l); x != 1 {
			out.Layers[l] = out.Layers[l].WithSeconds(out.Layers[l].Stage().Scale(x))
		}
	}
	out.Slow = e.slow(slow)
	out.Disturbed = slices.Contains(e.Steps[len(e.Steps)-1].Usable, false) || slices.Max(e.Passes) > 1
	return out
}

// slow returns by stage the time of its rank over that of the fastest: the factor from moved layers
// times the stage's pace. It is nil while all ranks are equal.
func (e *estimator) slow(moved []float64) []float64 {
	out := slices.Clone(e.Pace)
	for stage := range moved {
		out[stage] *= moved[stage]
	}
	if slices.Max(out) == 1 {
		return nil
	}
	return out
}

// errorOf returns the standard error of the mean of the lower half of n values, in units of the
// deviation of one value.
func errorOf(n int) float64 {
	return min(1, halfError/math.Sqrt(float64(max(1, n))))
}

// unslow divides the costs of layers by the slowness of the ranks on which they were measured.
func unslow(layers []cost.Layer, owners partition.Owners, slow []float64) {
	if slow == nil {
		return
	}
	for l := range layers {
		layers[l] = layers[l].WithSeconds(layers[l].Stage().Scale(1 / slow[owners[l]]))
	}
}

// scale returns cost.Table.Scale for the work of layers. By layer and microbatch it is the expected
// seconds over their mean. Values are rounded to a thousandth to keep files small.
func (e *estimator) scale(work [][]float64) [][]float64 {
	if work == nil {
		return nil
	}
	rows := make([][]float64, len(work))
	for l, row := range work {
		fixed := e.fixed(l)
		mean := cost.MeanOfFull(fixed, row)
		if row == nil || mean == 0 {
			continue
		}
		rows[l] = make([]float64, len(row))
		for m, w := range row {
			rows[l][m] = math.Round(1e3*cost.OfFull(fixed, w)/mean) / 1e3
		}
	}
	return rows
}
