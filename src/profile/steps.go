package profile

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/partition"
)

// observed is the measurement of a step that the estimator keeps.
type observed struct {
	Layers []passes         `json:"layers"` // by layer, on its stage, not corrected for slow ranks
	Within float64          `json:"within"` // relative standard error of a layer's value, from the spread of its microbatches
	Owners partition.Owners `json:"owners"`
	Usable []bool           `json:"usable"`         // by stage: whether its ranks ran at their best pace
	Work   []float64        `json:"work,omitempty"` // by layer: the time of its passes divided by that of full passes; nil: all were full

	gone bool // whether the step no longer counts
}

// sample is the seconds of a pass of a layer in a step.
type sample struct {
	seconds float64
	step    *observed
}

// passes are the seconds of a layer's passes: forward, backward for inputs, for weights.
type passes [3]float64

func passesOf(s cost.Stage) passes { return passes{s.Forward, s.Input, s.Weight} }

func (p passes) stage() cost.Stage { return cost.Stage{Forward: p[0], Input: p[1], Weight: p[2]} }

// scaled returns the passes multiplied by factor.
func (p passes) scaled(factor float64) passes {
	for i := range p {
		p[i] *= factor
	}
	return p
}

// value is a step's measurement of a layer on full microbatches. The seconds of a pass are the mean
// of the lower half of the microbatches. deviation is the standard error of the sum of the passes,
// relative to this sum. It is infinite if there are too few microbatches to estimate it.
type value struct {
	cost.Stage
	deviation float64
}

// evaluate returns the value of a layer on full microbatches, and its median seconds at the work
// that it did. fixed is the fixed share φ of its passes.
func evaluate(samples []cost.Stage, fixed float64, work []float64) (v value, medians cost.Stage) {
	v.deviation = math.Inf(1)
	if samples = full(samples, fixed, work); len(samples) == 0 {
		return v, medians
	}
	list := make([]float64, len(samples))
	var lower, middle passes
	variance := 0.0
	for i := range lower {
		for m := range samples {
			list[m] = passesOf(samples[m])[i]
		}
		cost.Halve(list)
		lower[i], middle[i] = cost.LowerHalf(list), cost.Median(list)
		deviation := cost.LowerHalfError(list)
		variance += deviation * deviation
	}
	v.Stage = lower.stage()
	if total := v.Seconds(); total > 0 && len(samples) >= leastSamples {
		v.deviation = math.Sqrt(variance) / total
	}
	return v, middle.stage().Scale(cost.MeanOfFull(fixed, work))
}

// observe returns the measurement of a step in the form that the estimator keeps.
func observe(values []value, owners partition.Owners) *observed {
	o := &observed{Layers: make([]passes, len(values)), Owners: slices.Clone(owners), Usable: make([]bool, slices.Max(owners)+1)}
	for l, v := range values {
		o.Layers[l] = passesOf(v.Stage)
	}
	o.Within = medianDeviation(values)
	return o
}

// medianDeviation returns the median of the values' deviations.
func medianDeviation(values []value) float64 {
	var list []float64
	for _, v := range values {
		list = append(list, v.deviation)
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// add adds a step.
func (e *estimator) add(o *observed) {
	e.Steps = append(e.Steps, o)
	if e.ranked == nil {
		e.ranked = make([][3][]sample, len(o.Layers))
	}
	for l := range o.Layers {
		for i, seconds := range o.Layers[l] {
			if seconds > 0 {
				list := &e.ranked[l][i]
				at, _ := slices.BinarySearchFunc(*list, seconds, func(s sample, x float64) int { return cmp.Compare(s.seconds, x) })
				*list = slices.Insert(*list, at, sample{seconds, o})
			}
		}
	}
}

// keep drops all steps except the newest `most`. The seconds of a pass from before its layer froze
// are kept until the layer has run some steps again. A layer that thaws thus has its earlier cost.
func (e *estimator) keep(most int) {
	before := max(0, len(e.Steps)-most)
	if before == 0 {
		return
	}
	for _, o := range e.Steps[:before] {
		o.gone = true
	}
	e.Steps = slices.Delete(e.Steps, 0, before)
	for l := range e.ranked {
		for i := range e.ranked[l] {
			list, counted := e.ranked[l][i], 0
			for _, s := range list {
				if !s.step.gone {
					counted++
				}
			}
			if counted >= settled {
				e.ranked[l][i] = slices.DeleteFunc(list, func(s sample) bool { return s.step.gone })
			}
		}
	}
}

// lower returns by pass the mean of the lower half of the layer's steps on a stage, at the stage's
// best pace. It also returns the number of counted steps. If no step counts, the mean is over all
// steps. A pass that the newest step left out, for example the backwards of a frozen layer, costs 0
// at once. Steps without the pass do not enter its mean.
func (e *estimator) lower(layer, stage int) (s cost.Stage, n int) {
	var buffer [window]float64
	var p passes
	for i, newest := range e.Steps[len(e.Steps)-1].Layers[layer] {
		if newest == 0 {
			continue
		}
		list := seen(buffer[:0], e.ranked[layer][i], layer, stage, false)
		n = max(n, len(list))
		if len(list) == 0 {
			if list = seen(list, e.ranked[layer][i], layer, stage, true); len(list) == 0 {
				continue
			}
		}
		p[i] = cost.LowerHalf(list) / (e.Pace[stage] * e.Passes[stage])
	}
	return p.stage(), n
}

// seen appends to list the seconds of a pass of a layer in the steps in which the layer was on a
// stage, ascending. Steps that do not count are left out, unless all is true.
func seen(list []float64, ranked []sample, layer, stage int, all bool) []float64 {
	for _, s := range ranked {
		if s.step.Owners[layer] == stage && (all || s.step.Usable[stage]) {
			list = append(list, s.seconds)
		}
	}
	return list
}

// matched returns the seconds of a layer in a step, and those of its cost. It adds only the passes
// that this step, the newest step and the cost all have.
func (e *estimator) matched(s *observed, layer int, cost *passes) (took, should float64) {
	newest, step := &e.Steps[len(e.Steps)-1].Layers[layer], &s.Layers[layer]
	for i, x := range step {
		if x > 0 && cost[i] > 0 && newest[i] > 0 {
			took, should = took+x, should+cost[i]
		}
	}
	return took, should
}
