package study

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"dynmo/src/balance"
)

// A ChainFamily is a kind of chain on which diffusion is judged: what one layer
// after the other costs, in any unit.
type ChainFamily struct {
	Name string
	Draw func(rnd *rand.Rand, layers int) []float64
}

// ChainFamilies are the six families. Steps and falling costs are hard for
// exchange between neighbours: work must pass through a run of stages that gain
// nothing by it. In the others layers are as uneven as they come.
var ChainFamilies = []ChainFamily{
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

// ratios are the layers for each stage at which diffusion is judged, and
// widths the numbers of stages.
var (
	ratios = [...]float64{1.5, 2, 3, 5, 8}
	widths = [...]int{4, 8, 16, 32}
)

// DiffusionGap is how far diffusion ends above the optimum on chains of one
// family: bottleneck over the smallest possible one, 1 at best.
type DiffusionGap struct {
	Family   string
	Chains   int
	P95, Max float64 // of the chains' ratios; p95 is the least that 95 % of them do not exceed
}

// DiffusionGaps lets diffusion balance chains of every family from uniform cuts,
// so many of each size (4 to 32 stages, 1.5 to 8 layers for each), and compares
// its bottleneck with balance.Partition's. Without memory limits, on equal
// stages. Seeds are fixed: equal chains give equal answers. To reach:
// P95 <= 1.02 and Max <= 1.06 in every family.
func DiffusionGaps(chains int) ([]DiffusionGap, error) {
	if chains < 1 {
		return nil, fmt.Errorf("chains of each size: %d, wanted at least 1", chains)
	}
	var gaps []DiffusionGap
	for i, family := range ChainFamilies {
		rnd := rand.New(rand.NewPCG(26, uint64(i)))
		var all []float64
		for _, stages := range widths {
			for _, ratio := range ratios {
				for range chains {
					chain := family.Draw(rnd, int(ratio*float64(stages)))
					over, err := overOptimum(balance.Problem{Seconds: chain, Stages: stages})
					if err != nil {
						return nil, fmt.Errorf("%s, %d layers on %d stages: %w", family.Name, len(chain), stages, err)
					}
					all = append(all, over)
				}
			}
		}
		slices.Sort(all)
		p95 := all[int(math.Ceil(0.95*float64(len(all))))-1]
		gaps = append(gaps, DiffusionGap{family.Name, len(all), p95, all[len(all)-1]})
	}
	return gaps, nil
}

// overOptimum returns diffusion's bottleneck, from uniform cuts, over the
// smallest possible one.
func overOptimum(p balance.Problem) (float64, error) {
	uniform, err := balance.Uniform(p)
	if err != nil {
		return 0, err
	}
	exact, err := balance.Partition(p)
	if err != nil {
		return 0, err
	}
	got, _, err := balance.Diffusion(p, uniform.Cuts, balance.DiffusionOptions{})
	return 1 + balance.Gap(got.Bottleneck, exact.Bottleneck), err
}
