package profile

import (
	"math"
	"slices"

	"dynmo/src/cost"
)

// leastSteps is the smallest number of steps whose spread estimates noise. With fewer steps, noise
// is that of microbatches, or the remembered noise of the model before the change if that is
// larger. The remembered noise is multiplied by `fades` in every step.
const leastSteps, fades = 4, 0.9

// supposed is the assumed deviation, from step to step, of all layers of a stage in common. It
// applies until enough steps are measured. The value was measured on four ranks that share two
// cores.
const supposed = 0.05

// noise estimates the deviation of the steps' values from the estimates of the layers. It estimates
// that of a layer alone, and that of all layers of a stage in common. If there are many steps, one
// more changes little, so noise is computed only every eighth call.
func (e *estimator) noise(layers []cost.Layer) {
	if e.Asked++; len(e.Steps) > recent && e.Asked%8 != 0 {
		return
	}
	within := e.Steps[len(e.Steps)-1].Within
	if len(e.Steps) < leastSteps {
		if e.Spread[0] == 0 || !math.IsInf(within, 1) {
			e.Spread[0] = max(within, fades*e.Spread[0])
		}
		if e.Asked < leastSteps && within > 0 {
			e.Spread[1] = supposed
		}
		return
	}
	var own, total []float64
	took, base := make([]float64, len(e.Pace)), make([]float64, len(e.Pace))
	costs := make([]passes, len(layers))
	for l := range layers {
		costs[l] = passesOf(layers[l].Stage())
	}
	for _, s := range e.Steps {
		clear(took)
		clear(base)
		counts := func(l int) bool { return s.Owners[l] == e.Home[l] && s.Usable[e.Home[l]] }
		for l, stage := range e.Home {
			if counts(l) {
				seconds, should := e.matched(s, l, &costs[l])
				took[stage] += seconds
				base[stage] += should
			}
		}
		for l, stage := range e.Home {
			if counts(l) {
				if seconds, should := e.matched(s, l, &costs[l]); should > 0 {
					own = append(own, seconds/should*base[stage]/took[stage])
				}
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
	e.Spread = [2]float64{alone, math.Sqrt(max(0, common*common-alone*alone/perStage))}
}

// scale returns the deviation of values, from the distance between their lower quartile and their
// median. Values above the median have no influence.
func scale(list []float64) float64 {
	slices.Sort(list)
	return (cost.Quantile(list, 0.5) - cost.Quantile(list, 0.25)) / 0.6745
}

// alike returns the groups of at least two layers with the same structure and the same passes.
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

// share moves the estimates of layers with the same structure towards their mean, as far as their
// differences are noise (James & Stein 1961). With the variance v of the estimates in the group and
// their error s² the share is min(1, s²/v).
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
			on := out.On[l]
			errors += (out.Layer[l]*out.Layer[l] + out.Stage[on]*out.Stage[on] + e.Doubts[on]*e.Doubts[on]) / float64(len(group))
		}
		if !(variance > 0) || math.IsInf(errors, 1) {
			continue
		}
		to := min(1, errors/variance)
		for _, l := range group {
			own := out.Layers[l].Stage()
			out.Layers[l] = out.Layers[l].WithSeconds(own.Scale(1 - to).Plus(mean.Scale(to)))
			out.Layer[l] *= 1 - to + to/math.Sqrt(float64(len(group)))
		}
	}
}
