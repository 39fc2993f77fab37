package decisions

import (
	"math"
	"slices"
	"testing"
)

func noiseOf(t *testing.T, name string) Noise {
	t.Helper()
	k := slices.IndexFunc(Noises, func(n Noise) bool { return n.Name == name })
	if k < 0 {
		t.Fatalf("no noise %q", name)
	}
	return Noises[k]
}

// TestNoiseQuantiles: single passes have the quantiles of their distribution.
func TestNoiseQuantiles(t *testing.T) {
	exponential := func(a float64) map[float64]float64 {
		return map[float64]float64{0.05: 1 - a*math.Log(0.95), 0.5: 1 + a*math.Ln2, 0.95: 1 - a*math.Log(0.05)}
	}
	for name, want := range map[string]map[float64]float64{
		"none": {0.05: 1, 0.95: 1}, "one-sided-20": exponential(0.2), "one-sided-40": exponential(0.4), "bursts": exponential(0.2),
		"drift":        exponential(0.05),
		"symmetric-20": {0.15866: math.Exp(-0.2), 0.5: 1, 0.84134: math.Exp(0.2)}, // one deviation
		"recorded":     {0.05: 0.86, 0.25: 0.93, 0.5: 1, 0.75: 1.10, 0.95: 1.36, 0.99: 1.65},
	} {
		d := newDraws(noiseOf(t, name), 1, 500, 8, 30)
		var all []float64
		for step := range 400 {
			all = append(all, d.spans(step, step%30, 100)...)
		}
		for share, q := range want {
			tolerance := 0.02 // five standard errors of the widest
			if share == 0.99 {
				tolerance = 0.06
			}
			if got := quantile(all, share); math.Abs(got-q) > tolerance {
				t.Errorf("%s: quantile %v is %v, want %v", name, share, got, q)
			}
		}
	}
}

// TestBursts: one rank at a time or more is slow, by so much and for so long as
// bursts last, in about a fifth of the steps.
func TestBursts(t *testing.T) {
	const steps = 20_000
	d := newDraws(noiseOf(t, "bursts"), 1, steps, 8, 30)
	slow, run, longest := 0, make([]int, 8), 0
	for step := range steps {
		any := false
		for rank := range run {
			f := d.rank(step, rank)
			if f != 1 && (f < burstLeast || f > burstLeast+burstRange) {
				t.Fatalf("factor %v", f)
			}
			if run[rank]++; f == 1 {
				run[rank] = 0
			}
			any, longest = any || f > 1, max(longest, run[rank])
		}
		if any {
			slow++
		}
	}
	// 1 - Π over the lengths l of 1 to 20 of the chance that none began: 0.98^10.5.
	if share := float64(slow) / steps; math.Abs(share-0.19) > 0.03 || longest < burstMost || longest > 3*burstMost {
		t.Errorf("a rank is slow in %v of the steps, longest for %d", share, longest)
	}
}

// TestCommonAndDrift: the factor of a rank's step has the deviation recorded, and
// true costs drift smoothly from 1 to at most 30 % more or less.
func TestCommonAndDrift(t *testing.T) {
	const steps, layers = 500, 40
	d := newDraws(noiseOf(t, "recorded"), 1, steps, 8, layers)
	var logs []float64
	for step := range steps {
		logs = append(logs, math.Log(d.rank(step, step%8)))
	}
	if below := quantile(logs, 0.15866); math.Abs(below+commonSpread) > 0.01 {
		t.Errorf("steps of a rank deviate by %v, want %v", -below, commonSpread)
	}
	d = newDraws(noiseOf(t, "drift"), 1, steps, 8, layers)
	most := 0.0
	for l := range layers {
		if f := d.truth(0, l); f != 1 {
			t.Fatalf("a drift begins at %v", f)
		}
		for step := 1; step < steps; step++ {
			f := d.truth(step, l)
			if math.Abs(f-1) > driftMost || math.Abs(f-d.truth(step-1, l)) > 2*driftMost/steps {
				t.Fatalf("layer %d: %v at step %d, %v before", l, f, step, d.truth(step-1, l))
			}
			most = max(most, math.Abs(f-1))
		}
	}
	if most < 0.8*driftMost {
		t.Errorf("no layer drifts by more than %v", most)
	}
}

// TestDrawsRepeat: what is drawn depends on the seed, the step and the layer or rank,
// and not on what was drawn before.
func TestDrawsRepeat(t *testing.T) {
	for _, noise := range Noises {
		a, b := newDraws(noise, 1, 50, 8, 30), newDraws(noise, 1, 50, 8, 30)
		b.spans(3, 4, 10)
		b.rank(1, 2)
		x := slices.Clone(a.spans(7, 5, 48))
		if y := b.spans(7, 5, 48); !slices.Equal(x, y) || a.rank(7, 5) != b.rank(7, 5) || a.truth(7, 5) != b.truth(7, 5) {
			t.Errorf("%s: equal keys draw other numbers", noise.Name)
		}
		if other := newDraws(noise, 2, 50, 8, 30); noise.span != nil && slices.Equal(x, other.spans(7, 5, 48)) {
			t.Errorf("%s: the seed does not matter", noise.Name)
		}
	}
}
