package study

import (
	"testing"

	"dynmo/src/dynamic"
	"dynmo/src/expect"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// BenchmarkAsk is 10,000 steps of a kind that changes the model in every one, on 720 ranks:
// the run, both baselines, and all again with a small head.
func BenchmarkAsk(b *testing.B) {
	for _, kind := range []schedule.Kind{schedule.Kind1F1B, schedule.KindZBH1, schedule.KindAuto} {
		b.Run(string(kind), func(b *testing.B) {
			c := plantest.Settings(kind, 26, 24, 96)
			c.Parallel.Replicas = 30
			table := plantest.Chain(26, 0, 0)
			for l := range table.Layers {
				table.Layers[l].Bytes.Gradients = 50 << 20
			}
			o := on(c, sim.Network{
				Node:    sim.Link{Latency: 3e-6, Bandwidth: 4e11},
				Between: sim.Link{Latency: 5e-6, Bandwidth: 5e10}, PerNode: 4,
			})
			for b.Loop() {
				series, sampling, err := Generate("moe", table, c, dynamic.MadeUp{Steps: 10_000}, 0)
				expect.OK(b, err)
				o.Sampling = sampling
				_, err = Ask(series, o)
				expect.OK(b, err)
			}
		})
	}
}
