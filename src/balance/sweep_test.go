package balance

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynmo/src/expect"
)

func runs(levels ...float64) func(layers int) []float64 {
	return func(layers int) []float64 {
		var chain []float64
		for l := range layers {
			chain = append(chain, levels[l*len(levels)/layers])
		}
		return chain
	}
}

func TestTmp(t *testing.T) {
	uneven := func(layers int) []float64 {
		rnd := rand.New(rand.NewPCG(31, 32))
		var c []float64
		for range layers {
			c = append(c, 0.85+0.3*rnd.Float64())
		}
		return c
	}
	logn := func(layers int) []float64 {
		rnd := rand.New(rand.NewPCG(31, 32))
		var c []float64
		for range layers {
			c = append(c, math.Exp(rnd.NormFloat64()))
		}
		return c
	}
	exp := func(layers int) []float64 {
		rnd := rand.New(rand.NewPCG(31, 32))
		var c []float64
		for range layers {
			c = append(c, rnd.ExpFloat64())
		}
		return c
	}
	falling := func(layers int) []float64 {
		var c []float64
		for l := range layers {
			c = append(c, float64(layers-l))
		}
		return c
	}
	root := func(layers int) []float64 {
		var c []float64
		for l := range layers {
			c = append(c, 1/math.Sqrt(float64(l+1)))
		}
		return c
	}
	inv := func(layers int) []float64 {
		var c []float64
		for l := range layers {
			c = append(c, 1/float64(l+1))
		}
		return c
	}
	for name, f := range map[string]func(int) []float64{"steps": runs(1, .4, 2.5, .1), "±15": uneven, "logn": logn, "exp": exp, "falling": falling, "root": root, "inv": inv} {
		for _, size := range [][2]int{{36, 12}, {48, 16}, {72, 24}, {24, 8}, {512, 128}, {10000, 1000}} {
			p := Problem{Seconds: f(size[0]), Stages: size[1]}
			u, err := Uniform(p)
			expect.OK(t, err)
			exact, err := Partition(p)
			expect.OK(t, err)
			got, _, err := Diffusion(p, u.Cuts, DiffusionOptions{})
			expect.OK(t, err)
			t.Logf("%-8s %v %.4f of %.4f: %.4f uniform %.3f", name, size, got.Bottleneck, exact.Bottleneck, Gap(got.Bottleneck, exact.Bottleneck), Gap(u.Bottleneck, exact.Bottleneck))
		}
	}
	rnd := rand.New(rand.NewPCG(21, 22))
	var gaps []float64
	unfit, worse := 0, 0
	for range 2000 {
		p, present := diffusible(rnd)
		exact, err := Partition(p)
		got, _, err2 := Diffusion(p, present, DiffusionOptions{})
		if err != nil {
			unfit++
			continue
		}
		if err2 != nil {
			worse++
			continue
		}
		gaps = append(gaps, Gap(got.Bottleneck, exact.Bottleneck))
	}
	off := 0
	for _, g := range gaps {
		if g > 1e-12 {
			off++
		}
	}
	t.Log(len(gaps), "unfit", unfit, "not found", worse, "off", off, "max", slices.Max(gaps), "p95", quantile(gaps, .95), quantile(gaps, .99))
}
