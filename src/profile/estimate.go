package profile

import (
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/partition"
)

// estimator keeps what layers cost in the steps since the model changed, and says
// what they are taken to cost.
//
// Noise on shared machines is one-sided: a kernel is interrupted, never hurried.
// Measured on two cores that four ranks share, single passes of equal blocks have
// quantiles .05, .25, .75 and .95 of 0.86, 0.93, 1.10 and 1.36 of the median, with a
// foreign process beside them 2.3 at .95; their lower quartiles agree within 2 %,
// medians differ by up to 24 %. So a step's value is the mean of the lower half of its
// microbatches, and the estimate that of the lower half of the steps: what lies above
// the median has no weight, and where noise is symmetric, where the minimum fails,
// little is lost. Steps in which a rank was slower than at its best do not count, until
// that has lasted for patience steps: then it is how fast the rank is.
type estimator struct {
	speeds Speeds
	steps  []observed // the newest last
	home   partition.Owners
	base   []float64  // by layer: the last estimate
	pace   []float64  // by stage: how many times longer its rank takes for now than at its best
	last   []float64  // by stage: how many times longer the newest step took than at its pace
	passes []float64  // by stage: how many times longer the steps took that count, where that may pass
	doubts []float64  // by stage: the share by which its layers may cost less, if it was disturbed when they changed
	proven []float64  // by stage: how many times slower than others, as moved layers tell, it has been for long
	asked  int        // how many times for the spread
	spread [2]float64 // relative, of a step's value: of layers alone, of stages in common; kept over changes
}

// observed is what a step said.
type observed struct {
	layers []cost.Stage // of their owners, slow or not
	within float64      // relative standard error of a layer's value that microbatches tell
	owners partition.Owners
	usable []bool // by stage: it was as fast as it can be
}

const (
	// window is how many steps an estimate looks back on, recent how many where costs
	// drift.
	window, recent = 64, 16
	// settled is how many steps a layer must have run on another stage before its
	// costs there replace those from before.
	settled = 5
	// halfError is by how much the deviation of the mean of the lower half of n normal
	// values is larger than that of the mean of all: 2·sqrt(Var(min(X, 0))).
	halfError = 1.168
	// leastSamples is from how many microbatches on their spread is an estimate of noise.
	leastSamples = 4
)

// observe takes the costs of a step and what it says of every layer, and returns the
// estimate. forget says that costs measured before this step do not hold.
func (e *estimator) observe(t cost.Table, values []value, owners partition.Owners, forget bool) cost.Estimate {
	if forget {
		e.doubt()
		e.steps, e.home, e.base = nil, nil, nil
		e.speeds.Changed()
	}
	if n := slices.Max(owners) + 1; len(e.pace) != n { // at the start, or stages are others than before
		*e = estimator{spread: e.spread}
		e.pace, e.proven = slices.Repeat([]float64{1}, n), slices.Repeat([]float64{1}, n)
		e.last, e.doubts = nil, make([]float64, n)
	}
	if e.home == nil {
		e.home = slices.Clone(owners)
	}
	e.steps = append(e.steps, observe(values, owners))
	e.steps = e.steps[max(0, len(e.steps)-window):]
	e.pacing()
	if e.drifts() {
		e.steps = e.steps[len(e.steps)-recent:]
	}
	e.settle(owners)
	return e.estimate(t)
}

// value is what a step says of a layer: the means of the lower halves of its
// microbatches, and their standard error, relative to the sum; infinite where microbatches are too
// few to tell.
type value struct {
	cost.Stage
	deviation float64
}

// evaluate returns the value of a layer, and its medians.
func evaluate(samples []cost.Stage) (v value, medians cost.Stage) {
	list := make([]float64, len(samples))
	variance := 0.0
	for _, of := range ops {
		for i := range samples {
			list[i] = *of(&samples[i])
		}
		slices.Sort(list)
		var deviation float64
		*of(&v.Stage), deviation = cost.LowerHalf(list)
		*of(&medians) = cost.Quantile(list, 0.5)
		variance += deviation * deviation
	}
	v.deviation = math.Inf(1)
	if total := v.Seconds(); total > 0 && len(samples) >= leastSamples {
		v.deviation = math.Sqrt(variance) / total
	}
	return v, medians
}

// observe returns what a step said.
func observe(values []value, owners partition.Owners) observed {
	o := observed{layers: make([]cost.Stage, len(values)), owners: slices.Clone(owners), usable: make([]bool, slices.Max(owners)+1)}
	deviations := make([]float64, len(values))
	for l, v := range values {
		o.layers[l], deviations[l] = v.Stage, v.deviation
	}
	slices.Sort(deviations)
	o.within = deviations[len(deviations)/2]
	return o
}

// ops are the passes of a layer.
var ops = [...]func(*cost.Stage) *float64{
	func(s *cost.Stage) *float64 { return &s.Forward },
	func(s *cost.Stage) *float64 { return &s.Input },
	func(s *cost.Stage) *float64 { return &s.Weight },
}

// settle lets layers that have moved, and run long enough where they are now, count
// by what they cost there, and lets the speeds of ranks be seen by them.
func (e *estimator) settle(owners partition.Owners) {
	if slices.Equal(e.home, owners) {
		return
	}
	next := slices.Clone(e.home)
	before, after := make([]float64, len(owners)), make([]float64, len(owners))
	for l, stage := range owners {
		at, counted := e.lower(l, e.home[l])
		now, n := e.lower(l, stage)
		before[l], after[l] = at.Seconds(), at.Seconds()
		if stage != e.home[l] && n >= settled {
			next[l], after[l] = stage, now.Seconds()
			if counted == 0 || !e.steady(e.home[l]) {
				before[l] = 0 // its rank may be another now, which tells nothing of the two
			}
			if !e.steady(stage) {
				e.speeds.Forget(stage)
			}
		}
	}
	if slices.Equal(next, e.home) {
		return
	}
	e.speeds.Observe(before, e.home)
	e.speeds.Observe(after, next)
	e.home = next
}

// lower returns the means of the lower halves of a layer over the steps in which it was on a
// stage, at the stage's best pace, and how many of these count; where none does, over all of
// them. A pass that the newest step left out, as a frozen layer's backwards, costs nothing at
// once; where it ran is all that counts.
func (e *estimator) lower(layer, stage int) (s cost.Stage, n int) {
	var buffer [window]float64
	for _, of := range ops {
		var list []float64
		if list, n = e.seen(buffer[:0], of, layer, stage, false); len(list) == 0 {
			list, _ = e.seen(buffer[:0], of, layer, stage, true)
		}
		if newest := &e.steps[len(e.steps)-1]; len(list) == 0 || *of(&newest.layers[layer]) == 0 {
			continue
		}
		slices.Sort(list)
		mean, _ := cost.LowerHalf(list)
		*of(&s) = mean / (e.pace[stage] * e.passes[stage])
	}
	return s, n
}

// seen appends to list what a pass of a layer took in the steps in which the layer was on a
// stage and the pass ran, and returns how many steps the layer was there. Steps that do not
// count are left out, unless all are wanted.
func (e *estimator) seen(list []float64, of func(*cost.Stage) *float64, layer, stage int, all bool) (seen []float64, n int) {
	for i := range e.steps {
		step := &e.steps[i]
		if step.owners[layer] != stage || !all && !step.usable[stage] {
			continue
		}
		n++
		if x := *of(&step.layers[layer]); x > 0 {
			list = append(list, x)
		}
	}
	return list, n
}

// estimate returns what the steps so far tell.
func (e *estimator) estimate(t cost.Table) cost.Estimate {
	stages := len(e.pace)
	out := cost.Estimate{Table: t, Layer: make([]float64, len(e.home)), Stage: make([]float64, stages), On: e.home}
	out.Layers = slices.Clone(t.Layers)
	counts := make([]int, len(e.home))
	for l, home := range e.home {
		var s cost.Stage
		s, counts[l] = e.lower(l, home)
		out.Layers[l] = t.Layers[l].With(s)
	}
	for l, c := range out.Layers {
		// A base taken at a pace that may pass would have its error in the next pace.
		if e.passes[e.home[l]] == 1 {
			e.base[l] = c.Seconds()
		}
	}
	e.noise(out.Layers)
	for l, n := range counts {
		out.Layer[l] = e.spread[0] * errorOf(n)
	}
	for s := range out.Stage {
		out.Stage[s] = max(e.spread[1]*errorOf(len(e.steps)), e.doubts[s])
	}
	slow := e.speeds.Slow(stages)
	e.prove(slow, out.Stage)
	unslow(out.Layers, e.home, slow)
	e.share(out)
	out.Slow = e.slow(slow)
	return out
}

// slow returns how many times slower than the fastest every rank is: as moved layers
// tell, and by its pace. It is nil while all are alike.
func (e *estimator) slow(moved []float64) []float64 {
	out := slices.Clone(e.pace)
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
	for l := range layers {
		if slow != nil {
			layers[l] = layers[l].With(layers[l].Stage().Scale(1 / slow[owners[l]]))
		}
	}
}

// leastSteps is from how many steps on they tell their own noise. Before, it is
// that of the model before the change, and what microbatches tell.
const leastSteps = 4

// supposed is by how much all layers of a stage together are taken to vary from step to
// step as long as no steps have told: as they do where four ranks share two cores.
const supposed = 0.05

// noise finds the deviation of the values of steps from the layers' estimates: of a
// layer alone, and of all layers of a stage in common. Many steps tell it little
// otherwise than one fewer, so that they are asked every eighth time.
func (e *estimator) noise(layers []cost.Layer) {
	if e.asked++; len(e.steps) > recent && e.asked%8 != 0 {
		return
	}
	within := e.steps[len(e.steps)-1].within
	if len(e.steps) < leastSteps {
		if e.spread[0] == 0 || !math.IsInf(within, 1) {
			e.spread[0] = max(within, e.spread[0])
		}
		if e.asked < leastSteps && within > 0 {
			e.spread[1] = supposed
		}
		return
	}
	var own, total []float64
	took, base := make([]float64, len(e.pace)), make([]float64, len(e.pace))
	for _, s := range e.steps {
		clear(took)
		clear(base)
		counts := func(l int) bool { return s.owners[l] == e.home[l] && s.usable[e.home[l]] && layers[l].Seconds() > 0 }
		for l, stage := range e.home {
			if counts(l) {
				took[stage] += s.layers[l].Seconds()
				base[stage] += layers[l].Seconds()
			}
		}
		for l, stage := range e.home {
			if counts(l) {
				own = append(own, s.layers[l].Seconds()/layers[l].Seconds()*base[stage]/took[stage])
			}
		}
		for stage := range took {
			if base[stage] > 0 {
				total = append(total, took[stage]/base[stage])
			}
		}
	}
	if len(total) == 0 {
		return
	}
	perStage := float64(len(own)) / float64(len(total))
	alone := scale(own) * math.Sqrt(perStage/max(1, perStage-1))
	if perStage < 2 && !math.IsInf(within, 1) {
		alone = within
	}
	common := scale(total)
	e.spread = [2]float64{alone, math.Sqrt(max(0, common*common-alone*alone/perStage))}
}

// scale returns the deviation of the values, by the distance from their lower
// quartile to their median: what lies above does not count.
func scale(list []float64) float64 {
	slices.Sort(list)
	return (cost.Quantile(list, 0.5) - cost.Quantile(list, 0.25)) / 0.6745
}

// alike returns the groups of at least two layers that have one structure and make
// the same passes.
func alike(t cost.Table) [][]int {
	type structure struct {
		nonZeros, output int64
		bytes            cost.Bytes
		passes           [3]bool
	}
	groups := make(map[structure][]int)
	for l, layer := range t.Layers {
		b := layer.Bytes
		b.Workspace = 0 // of the run, not of the layer
		k := structure{layer.NonZeros, layer.Output, b, [3]bool{layer.Forward > 0, layer.BackwardInput > 0, layer.BackwardWeight > 0}}
		groups[k] = append(groups[k], l)
	}
	var out [][]int
	for _, g := range groups {
		if len(g) > 1 {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(a, b []int) int { return a[0] - b[0] })
	return out
}

// share draws the estimates of layers of one structure towards their mean by as
// much as their differences are noise (James & Stein 1961): with the variance v of
// the estimates over the group and their error s², by min(1, s²/v).
func (e *estimator) share(out cost.Estimate) {
	for _, group := range alike(out.Table) {
		var mean cost.Stage
		for _, l := range group {
			mean = mean.Plus(out.Layers[l].Stage().Scale(1 / float64(len(group))))
		}
		variance, errors := 0.0, 0.0
		for _, l := range group {
			d := out.Layers[l].Seconds()/mean.Seconds() - 1
			variance += d * d / float64(len(group)-1)
			errors += (out.Layer[l]*out.Layer[l] + out.Stage[out.On[l]]*out.Stage[out.On[l]]) / float64(len(group))
		}
		if !(variance > 0) || math.IsInf(errors, 1) {
			continue
		}
		to := min(1, errors/variance)
		for _, l := range group {
			own := out.Layers[l].Stage()
			out.Layers[l] = out.Layers[l].With(own.Scale(1 - to).Plus(mean.Scale(to)))
			out.Layer[l] *= 1 - to + to/math.Sqrt(float64(len(group)))
		}
	}
}
