package record

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/trace"
)

const (
	// longestPhase is the largest number of steps in a phase of a log. The limit keeps a slow drift
	// visible and a file of costs small.
	longestPhase = 64
	// sampledSteps and sampledMicrobatches bound the measurements that a phase keeps. The samples
	// of a layer take about a kilobyte, enough to estimate the uncertainty of its costs.
	sampledSteps, sampledMicrobatches = 8, 8
)

// phaseLog gathers the costs of consecutive steps as long as neither the model nor the
// layout changes, and returns them as one phase.
type phaseLog struct {
	model string // settings under which the costs are valid (see cost.Phase)

	phase  Phase
	steps  []cost.Measurement // seconds are cost.Location of the step's microbatches; samples are of some of these
	fixed  []float64          // by layer: fixed share of a pass (see cost.Measurement), from the newest step
	runs   []Course           // by step
	known  []cost.Known       // by step; kept while every step has one
	change string             // kind of the model change before the next step; "" for none
	again  bool               // whether the next phase is the first after a resume
}

// add adds a number of equal steps: their measurement, the part of it that the estimator used (nil: not known), and its
// Course, with Scale in seconds. If the step begins a new phase, add returns the phase before it.
func (l *phaseLog) add(step, steps int, m cost.Measurement, known *cost.Known, run Course) (done Phase, ok bool) {
	if len(l.steps) == 0 || l.change != "" || l.phase.Steps >= longestPhase || !l.runs[0].Layout.Equal(run.Layout) {
		done, ok = l.take()
		l.phase = Phase{Phase: cost.Phase{Step: step, Model: l.model, Change: l.change}}
		l.change = ""
	}
	l.phase.Steps += steps
	if m.Samples != nil {
		owners := run.Layout.Owners()
		m.Layers, m.Samples = slices.Clone(m.Layers), slices.Clone(m.Samples)
		for i, row := range m.Samples {
			fast := 1.0 // seconds of a rank of speed 1, divided by those of the layer's rank
			if m.Slow != nil {
				fast = 1 / m.Slow[owners[i]]
			}
			m.Layers[i] = m.Layers[i].WithSeconds(cost.Location(m.Even(row, i)).Scale(fast))
			m.Samples[i] = some(row, step, fast)
		}
	}
	if known != nil {
		l.known = append(l.known, *known)
	}
	if m.Fixed != nil {
		l.fixed = m.Fixed
	}
	l.steps, l.runs = append(l.steps, m), append(l.runs, run)
	return done, ok
}

// some returns sampledMicrobatches of a step's microbatches, evenly spread and different in every
// step. Each is multiplied by factor.
func some(row []cost.Stage, step int, factor float64) []cost.Stage {
	n := min(len(row), sampledMicrobatches)
	list := make([]cost.Stage, n)
	for i := range list {
		list[i] = row[(i*len(row)/n+step)%len(row)].Scale(factor)
	}
	return list
}

// cost returns the cost of a layer in the phase. In every step the mean microbatch is scaled to all
// tokens. cost.Location of these means is multiplied by the mean share over the steps. The tokens
// of a layer may differ much from step to step. Without the scaling the lower half of the steps
// would be the steps with few tokens.
func (l *phaseLog) cost(layer int) cost.Stage {
	var list []cost.Stage
	sum := 0.0
	for _, m := range l.steps {
		took := 1.0
		if m.Work != nil && l.fixed != nil {
			took = cost.MeanOfFull(l.fixed[layer], m.Work[layer])
		}
		if sum += took; took > 0 {
			list = append(list, m.Layers[layer].Stage().Scale(1/took))
		}
	}
	return cost.Location(list).Scale(sum / float64(len(l.steps)))
}

// take returns the gathered phase and starts a new one. Run is that of the step with the median
// makespan.
func (l *phaseLog) take() (Phase, bool) {
	if len(l.steps) == 0 {
		return Phase{}, false
	}
	p, lines := l.phase, len(l.steps)
	p.Table = l.steps[lines-1].Table
	p.Layers = slices.Clone(p.Layers)
	p.Dispatch = trace.Median(each(l.steps, func(m cost.Measurement) float64 { return m.Dispatch }))
	for i, layer := range p.Layers {
		p.Layers[i] = layer.WithSeconds(l.cost(i))
	}
	if !slices.ContainsFunc(l.steps, func(m cost.Measurement) bool { return m.Samples == nil }) {
		p.Samples = relative(l.steps, p.Layers)
	}
	if len(l.known) == lines {
		p.Known = l.known
		for i := range p.Known {
			relateKnown(&p.Known[i], p.Layers)
		}
	}
	rest, balancing := cost.Lower(each(l.runs, func(r Course) float64 { return r.Rest })), 0.0
	for _, r := range l.runs {
		balancing += r.Balancing
	}
	slices.SortStableFunc(l.runs, func(a, b Course) int { return cmp.Compare(a.Makespan, b.Makespan) })
	run := l.runs[(lines-1)/2]
	run.Rest, run.Balancing, run.Resumed = rest, balancing, l.again
	l.again = false
	relate(run.Scale, p.Stages(run.Layout.Cuts, run.Layout.Map()), 1e4)
	p.Run = &run
	l.steps, l.runs, l.known = nil, nil, nil
	return p, true
}

// relative returns the samples of sampledSteps steps, evenly spread, divided by the costs of the
// layers.
func relative(steps []cost.Measurement, layers []cost.Layer) [][][]cost.Stage {
	costs := each(layers, cost.Layer.Stage)
	list := make([][][]cost.Stage, min(len(steps), sampledSteps))
	for i := range list {
		list[i] = steps[i*len(steps)/len(list)].Samples
		relate(list[i], costs, 1e3)
	}
	return list
}

// each returns the results of a function for all values of a list.
func each[T, U any](list []T, of func(T) U) []U {
	out := make([]U, len(list))
	for i, x := range list {
		out[i] = of(x)
	}
	return out
}

// relate divides each row by the cost with its index, and rounds to 1/precision.
func relate(rows [][]cost.Stage, costs []cost.Stage, precision float64) {
	digits := func(x float64) float64 { return math.Round(precision*x) / precision }
	for v, row := range rows {
		for m, took := range row {
			times := took.Over(costs[v])
			row[m] = cost.Stage{Forward: digits(times.Forward), Input: digits(times.Input), Weight: digits(times.Weight)}
		}
	}
}

// knownPrecision is the rounding of what the estimator used: to 1/knownPrecision of the costs.
const knownPrecision = 1e5

// relateKnown divides the seconds by the costs of the layers.
func relateKnown(k *cost.Known, layers []cost.Layer) {
	for l := range k.Layers {
		s := layers[l].Stage()
		for i, x := range [3]float64{s.Forward, s.Input, s.Weight} {
			if seconds := k.Layers[l][i]; x > 0 {
				k.Layers[l][i] = math.Round(knownPrecision*seconds/x) / knownPrecision
			} else {
				k.Layers[l][i] = 0
			}
		}
	}
}
