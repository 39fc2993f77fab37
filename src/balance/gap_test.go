package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"dynmo/src/expect"
)

// families are the kinds of chain on which diffusion is judged.
var families = []struct {
	name string
	draw func(rnd *rand.Rand, l, layers int) float64
}{
	{"equal", func(*rand.Rand, int, int) float64 { return 1 }},
	{"±15 %", func(rnd *rand.Rand, _, _ int) float64 { return 0.85 + 0.3*rnd.Float64() }},
	{"depth-scaled", func(rnd *rand.Rand, l, _ int) float64 { // magnitudes fall with depth as 1/sqrt(l+1), and so does what pruning leaves
		return (0.95 + 0.1*rnd.Float64()) / math.Sqrt(float64(l+1))
	}},
	{"frozen third", func(rnd *rand.Rand, l, layers int) float64 { // a frozen layer runs forward only: a third of the work
		t := 0.95 + 0.1*rnd.Float64()
		if l < layers/3 {
			t /= 3
		}
		return t
	}},
	{"heavy tail", func(rnd *rand.Rand, _, _ int) float64 { return math.Exp(rnd.NormFloat64()) }}, // log-normal, sigma 1
}

// TestDiffusionGap prints how far diffusion from uniform cuts ends above the
// optimum, in percent: 0 on equal stages without memory limits. DYNMO_LONG=1 takes 1000 chains of each kind and size
// instead of 200.
func TestDiffusionGap(t *testing.T) {
	chains := 200
	if os.Getenv("DYNMO_LONG") == "1" {
		chains = 1000
	}
	t.Logf("%-14s %10s %10s %10s %10s %10s %10s %10s", "family", "L on P", "static", "median", "p95", "rounds", "sweeps", "recuts")
	for _, family := range families {
		for _, size := range []struct{ layers, stages int }{{24, 8}, {48, 8}, {48, 24}, {96, 24}} {
			rnd := rand.New(rand.NewPCG(uint64(size.layers), uint64(size.stages)))
			var static, gaps, rounds, sweeps, recuts []float64
			for range chains {
				p := Problem{Stages: size.stages}
				for l := range size.layers {
					p.Seconds = append(p.Seconds, family.draw(rnd, l, size.layers))
				}
				uniform, err := Uniform(p)
				expect.OK(t, err)
				exact, err := Partition(p)
				expect.OK(t, err)
				got, d, err := Diffusion(p, uniform.Cuts, DiffusionOptions{})
				expect.OK(t, err)
				gap := Gap(got.Bottleneck, exact.Bottleneck)
				if gap < 0 {
					t.Fatalf("%s: diffusion %v beats the optimum %v", family.name, got.Cuts, exact.Cuts)
				}
				static = append(static, 100*Gap(uniform.Bottleneck, exact.Bottleneck))
				gaps = append(gaps, 100*gap)
				rounds = append(rounds, float64(d.Rounds))
				sweeps = append(sweeps, float64(d.Sweeps))
				recuts = append(recuts, float64(len(d.Squares)-1))
			}
			t.Logf("%-14s %10s %9.1f%% %9.2f%% %9.2f%% %10.0f %10.0f %10.0f", family.name,
				fmt.Sprintf("%d on %d", size.layers, size.stages),
				quantile(static, 0.5), quantile(gaps, 0.5), quantile(gaps, 0.95), quantile(rounds, 0.5), quantile(sweeps, 0.5), quantile(recuts, 0.5))
			if largest := slices.Max(gaps); largest > 1e-10 {
				t.Errorf("%s, %d on %d: gap %.2f %%, want 0", family.name, size.layers, size.stages, largest)
			}
		}
	}
}

// quantile returns the smallest value that a share q of the values does not exceed.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}
