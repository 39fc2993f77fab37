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
// Noise on shared machines is one-sided: a kernel is interrupted, never hurried. It was
// measured on two cores that four ranks share. Single passes of equal blocks have the
// quantiles .05, .25, .75 and .95 at 0.86, 0.93, 1.10 and 1.36 of the median; with a foreign
// process beside them .95 is at 2.3. Lower quartiles agree within 2 %, medians differ by up to
// 24 %. So the value of a step is the mean of the lower half of its microbatches. The estimate
// is the mean of the lower half of the steps. Values above the median have no weight. Where
// noise is symmetric the minimum would fail, and this estimate loses little. Steps in which a
// rank was slower than at its best do not count. After patience such steps the rank counts as
// slow.
type estimator struct {
	memory
	ranked [][3][]sample // by layer and of its passes: what the steps say, ascending
	took   []float64     // by stage: how many times longer than at its best its ranks took in the newest step
	moved  []float64     // by stage: how many times slower than the fastest, as moved layers tell; nil: all are alike
}

// memory is what an estimator knows of the steps so far, as checkpoints keep it.
type memory struct {
	Speeds rankSpeeds       `json:"speeds"`
	Steps  []*observed      `json:"steps"` // the newest last
	Home   partition.Owners `json:"home"`
	Base   []passes         `json:"base"`            // by layer: the last estimate
	Pace   []float64        `json:"pace"`            // by stage: how many times longer its rank takes for now than at its best
	Last   []float64        `json:"last"`            // by stage: how many times longer the newest step took than at its pace
	Lines  []line           `json:"lines,omitempty"` // by layer; nil: all have worked on full microbatches
	Passes []float64        `json:"passes"`          // by stage: how many times longer the steps took that count, where that may pass
	Doubts []float64        `json:"doubts"`          // by stage: the share by which its layers may cost less, if it was disturbed when they changed
	Proven []float64        `json:"proven"`          // by stage: how many times slower than others, as moved layers tell, it has been for long
	Asked  int              `json:"asked"`           // how many times for the spread
	Spread [2]float64       `json:"spread"`          // relative, of a step's value: of layers alone, of stages in common; kept over changes
}

const (
	// window is how many steps an estimate looks back on, recent how many where costs
	// drift.
	window, recent = 64, 16
	// settled is how many steps a layer must have run on another stage before its
	// costs there replace those from before.
	settled = 5
	// halfError is the deviation of the mean of the lower half of n normal values over the
	// deviation of the mean of all n: 2·sqrt(Var(min(X, 0))).
	halfError = 1.168
	// leastSamples is the number of microbatches from which on their spread estimates noise.
	leastSamples = 4
)

// observe takes what a step measured and says of every layer, and returns the estimate.
// forget says that costs measured before this step do not hold.
func (e *estimator) observe(m cost.Measurement, values []value, owners partition.Owners, forget bool) cost.Estimate {
	if forget {
		e.doubt()
		e.Steps, e.ranked, e.Home, e.Base, e.Lines = nil, nil, nil, nil, nil
		e.Speeds.Changed()
	}
	if n := slices.Max(owners) + 1; len(e.Pace) != n { // at the start, or stages are others than before
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

// settle looks at layers that have moved. A layer counts by its cost on the new stage once it has
// run there for settled steps. If no cost on the old stage is remembered it counts at once. The two
// costs of such layers give the speeds of the ranks.
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
				before[l] = 0 // its rank may be another now, which tells nothing of the two
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

// estimate returns what the steps so far tell.
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
		// A base taken at a pace that may pass would have its error in the next pace.
		if e.Passes[e.Home[l]] == 1 {
			e.Base[l] = passesOf(c.Stage())
		}
	}
	e.noise(out.Layers)
	// A stage's layers have most of their steps in common; where one has fewer, what
	// these have in common is its own error.
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

// slow returns how many times slower than the fastest every rank is: as moved layers
// tell, and by its pace. It is nil while all are alike.
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

// errorOf returns the standard error of the mean of the lower half of n values, in
// their deviations.
func errorOf(n int) float64 {
	return min(1, halfError/math.Sqrt(float64(max(1, n))))
}

// unslow divides what layers cost by how slow the ranks are that they were measured on.
func unslow(layers []cost.Layer, owners partition.Owners, slow []float64) {
	if slow == nil {
		return
	}
	for l := range layers {
		layers[l] = layers[l].WithSeconds(layers[l].Stage().Scale(1 / slow[owners[l]]))
	}
}

// scale returns cost.Table.Scale of layers that did such work: by layer and microbatch
// how many times the mean its seconds are, to a thousandth, so that files stay small.
func (e *estimator) scale(work [][]float64) [][]float64 {
	if work == nil {
		return nil
	}
	rows := make([][]float64, len(work))
	for l, row := range work {
		fixed := e.fixed(l)
		mean := meanOfFull(fixed, row)
		if row == nil || mean == 0 {
			continue
		}
		rows[l] = make([]float64, len(row))
		for m, w := range row {
			rows[l][m] = math.Round(1e3*ofFull(fixed, w)/mean) / 1e3
		}
	}
	return rows
}

// even returns what microbatches would have taken had they all been the mean one; those
// that took nothing say nothing of it.
func even(samples []cost.Stage, t cost.Table, layer int) []cost.Stage {
	if t.Scale == nil || t.Scale[layer] == nil {
		return samples
	}
	return divided(samples, func(m int) float64 { return t.Scale[layer][m] })
}
