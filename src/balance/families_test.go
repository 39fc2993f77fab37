package balance

import (
	"dynmo/src/expect"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A chainFamily is a kind of chain on which the tests measure diffusion. It gives the costs of the
// layers in order, in any unit.
type chainFamily struct {
	Name string
	Draw func(rnd *rand.Rand, layers int) []float64
}

// chainFamilies are the six families. Steps and falling costs are hard for
// exchange between neighbours: work must pass through a run of stages that gain
// nothing by it. In the others layers are as uneven as they come.
var chainFamilies = []chainFamily{
	{"pareto", each(func(rnd *rand.Rand, _ int) float64 { return math.Pow(1-rnd.Float64(), -1/1.5) })}, // index 1.5: a mean, but no variance
	{"log-normal", each(func(rnd *rand.Rand, _ int) float64 { return math.Exp(rnd.NormFloat64()) })},   // sigma 1
	{"steps", steps},
	{"one huge", func(rnd *rand.Rand, layers int) []float64 {
		chain := each(func(rnd *rand.Rand, _ int) float64 { return 0.85 + 0.3*rnd.Float64() })(rnd, layers)
		chain[rnd.IntN(layers)] = 2 + 14*rnd.Float64() // as an undivided head against blocks
		return chain
	}},
	{"alternating", func(rnd *rand.Rand, layers int) []float64 {
		pair := [2]float64{1, math.Pow(10, 1-2*rnd.Float64())}
		return each(func(_ *rand.Rand, l int) float64 { return pair[l%2] })(rnd, layers)
	}},
	{"decreasing", func(rnd *rand.Rand, layers int) []float64 {
		power := 0.25 + rnd.Float64()
		return each(func(_ *rand.Rand, l int) float64 { return math.Pow(float64(l+1), -power) })(rnd, layers)
	}},
}

// each returns a family whose layers are drawn one by one.
func each(draw func(rnd *rand.Rand, l int) float64) func(*rand.Rand, int) []float64 {
	return func(rnd *rand.Rand, layers int) []float64 {
		chain := make([]float64, layers)
		for l := range chain {
			chain[l] = draw(rnd, l)
		}
		return chain
	}
}

// steps draws two to six runs of equal layers, as long as each other, that cost
// between 0.1 and 2.5.
func steps(rnd *rand.Rand, layers int) []float64 {
	runs := 2 + rnd.IntN(5)
	levels := each(func(rnd *rand.Rand, _ int) float64 { return 0.1 * math.Pow(25, rnd.Float64()) })(rnd, runs)
	return each(func(_ *rand.Rand, l int) float64 { return levels[l*runs/layers] })(rnd, layers)
}

// TestDiffusionGaps: diffusion, from uniform cuts, ends on a bottleneck near the smallest possible
// one on chains of every family: within 6 %, and 95 % of the chains within 2 %.
func TestDiffusionGaps(t *testing.T) {
	for i, family := range chainFamilies {
		rnd := rand.New(rand.NewPCG(26, uint64(i)))
		var all []float64
		for _, stages := range []int{4, 8, 16, 32} {
			for _, ratio := range []float64{1.5, 2, 3, 5, 8} { // layers for each stage
				chain := family.Draw(rnd, int(ratio*float64(stages)))
				over, err := overOptimum(Problem{Seconds: chain, Stages: stages})
				expect.OK(t, err)
				all = append(all, over)
			}
		}
		slices.Sort(all)
		p95 := all[int(math.Ceil(0.95*float64(len(all))))-1]
		if most := all[len(all)-1]; all[0] < 1 || p95 > 1.02 || most > 1.06 {
			t.Errorf("%s: 95 %% of the chains within %v of the optimum, the worst %v", family.Name, p95, most)
		}
	}
}

// overOptimum returns diffusion's bottleneck, from uniform cuts, over the
// smallest possible one.
func overOptimum(p Problem) (float64, error) {
	uniform, err := Uniform(p)
	if err != nil {
		return 0, err
	}
	exact, err := Partition(p)
	if err != nil {
		return 0, err
	}
	got, _, err := Diffusion(p, uniform.Cuts, DiffusionOptions{})
	return 1 + Gap(got.Bottleneck, exact.Bottleneck), err
}
