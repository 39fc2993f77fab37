package profile

import (
	"math"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/random"
)

// leaving is a chain of layers after which tokens leave. Each layer works on a share of the tokens
// that differs between microbatches.
type leaving struct {
	estimator
	cuts  partition.Partition
	share func(layer int) float64 // mean work of a layer now
	fixed float64                 // φ
	noise float64                 // one-sided, of single passes
	steps uint64
}

const leavingLayers, leavingMicrobatches = 8, 32

// run runs steps and returns the estimate after the last.
func (c *leaving) run(steps int) (out cost.Estimate) {
	owners := partition.Line(len(c.cuts) - 1).Owners(c.cuts)
	for range steps {
		draw := random.Keyed(11, c.steps)
		m := cost.Measurement{Samples: make([][]cost.Stage, leavingLayers), Work: make([][]float64, leavingLayers)}
		m.Layers = make([]cost.Layer, leavingLayers)
		values := make([]value, leavingLayers)
		for l := range leavingLayers {
			m.Layers[l].NonZeros = int64(1000 + l)
			m.Samples[l], m.Work[l] = make([]cost.Stage, leavingMicrobatches), make([]float64, leavingMicrobatches)
			for b := range leavingMicrobatches {
				w := c.share(l)
				if w < 1 {
					w *= 0.5 + draw.Float64()
				}
				m.Work[l][b] = w
				pass := func() float64 { return cost.OfFull(c.fixed, w) * (1 + c.noise*draw.ExpFloat64()) }
				m.Samples[l][b] = cost.Stage{Forward: pass(), Input: pass(), Weight: pass()}
			}
			values[l], m.Layers[l] = c.value(m, l)
		}
		out = c.observe(m, values, owners, false)
		c.steps++
	}
	return out
}

func (c *leaving) value(m cost.Measurement, l int) (value, cost.Layer) {
	v, medians := evaluate(m.Samples[l], c.estimator.fixed(l), m.Work[l])
	return v, m.Layers[l].WithSeconds(medians)
}

// TestEstimateFollowsWork: the cost of a layer follows its tokens, down and up, within the steps
// that the forecast averages, however long it worked on other numbers. No rank counts as slow or
// disturbed for that.
func TestEstimateFollowsWork(t *testing.T) {
	c := &leaving{cuts: partition.Partition{0, 2, 4, 6, 8}, fixed: 0.2, noise: 0.1}
	check := func(when string, e cost.Estimate) {
		t.Helper()
		for l := range leavingLayers {
			got, want := e.Layers[l].Seconds()/e.Layers[0].Seconds(), cost.OfFull(c.fixed, c.share(l))/cost.OfFull(c.fixed, c.share(0))
			if math.Abs(got/want-1) > 0.08 {
				t.Errorf("%s: layer %d costs %.3f times the first, want %.3f", when, l, got, want)
			}
		}
		if e.Slow != nil || e.Disturbed {
			t.Errorf("%s: slow %v, disturbed %v", when, e.Slow, e.Disturbed)
		}
	}
	c.share = func(int) float64 { return 1 }
	check("all are there", c.run(10))
	for _, share := range []float64{0.5, 0.15, 0.6} {
		c.share = func(l int) float64 { return math.Pow(share, float64(l)/7) }
		c.run(1) // tells what a pass takes whatever it works on
		check("shares of them", c.run(foreseen))
		check("for long", c.run(40))
	}
}

// TestNoWork: layers that no token reaches cost nothing, and no longer once one does.
func TestNoWork(t *testing.T) {
	c := &leaving{cuts: partition.Partition{0, 4, 8}, share: func(l int) float64 { return max(0, 1-float64(l)/4) }}
	e := c.run(8)
	for l := 4; l < leavingLayers; l++ {
		if e.Layers[l].Seconds() != 0 {
			t.Errorf("layer %d costs %v without a token", l, e.Layers[l].Seconds())
		}
	}
	c.share = func(l int) float64 { return 1 }
	for l, layer := range c.run(foreseen).Layers {
		if math.Abs(layer.Seconds()-3) > 1e-9 {
			t.Errorf("layer %d costs %v once all tokens are there again, want 3", l, layer.Seconds())
		}
	}
}

// TestLineTellsFixed: φ follows from how long microbatches of different work take; where
// all do the same nothing tells it.
func TestLineTellsFixed(t *testing.T) {
	for _, want := range []float64{0, 0.3, 1} {
		var a line
		draw := random.Keyed(3, 1)
		for range 3 {
			work, samples := make([]float64, 32), make([]cost.Stage, 32)
			for m := range work {
				work[m] = draw.Float64()
				samples[m] = cost.Stage{Forward: 2 * cost.OfFull(want, work[m])}
			}
			a.add(samples, work)
		}
		if got := a.fixed(); math.Abs(got-min(mostFixed, want)) > 1e-9 {
			t.Errorf("φ is %v, want %v", got, want)
		}
	}
	var same line
	same.add([]cost.Stage{{Forward: 1}, {Forward: 2}}, []float64{0.5, 0.5})
	if got := same.fixed(); got != 0 {
		t.Errorf("φ is %v where all microbatches did the same, want 0", got)
	}
}
