package sim

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// benchStep returns a ZB-H1 step of 24 unequal stages, 30 replicas and 96
// microbatches, on nodes of four ranks.
func benchStep(b *testing.B, most float64) Step {
	s, err := schedule.New(schedule.KindZBH1, 24, 1, 96)
	expect.OK(b, err)
	rnd := rand.New(rand.NewPCG(1, 2))
	step := Step{
		Schedule: s, Mesh: layout.Mesh{Stages: 24, Replicas: 30, Order: layout.StageMajor},
		Network: Network{
			Node: Link{3e-6, 3e11}, Between: Link{8e-6, 2.5e10}, PerNode: 4, Delay: comm.Delay{Most: most, Seed: 1},
		},
	}
	for range 24 {
		draw := func() float64 { return 1e-3 * (1 + rnd.Float64()) }
		step.Costs = append(step.Costs, cost.Stage{Forward: draw(), Input: draw(), Weight: draw()})
		step.Bytes = append(step.Bytes, 8<<20)
	}
	return step
}

// BenchmarkStep24 simulates one replica: without extras, with delays, and with spans.
func BenchmarkStep24(b *testing.B) {
	for _, most := range []float64{1, 4} {
		s := benchStep(b, most)
		b.Run(fmt.Sprintf("delay=%v", most), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Number++
				Run(s)
			}
		})
	}
	s := benchStep(b, 1)
	s.Spans = true
	b.Run("spans", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Run(s)
		}
	})
}

// BenchmarkStep720 simulates a step of 720 ranks and its gradient sum. Replicas are all alike, or
// differ by delays.
func BenchmarkStep720(b *testing.B) {
	layers := make([]cost.Layer, 24)
	var cuts partition.Partition
	for l := range layers {
		layers[l] = cost.Layer{BackwardWeight: 1, Bytes: cost.Bytes{Gradients: 50 << 20}}
		cuts = append(cuts, l)
	}
	cuts = append(cuts, 24)
	for _, most := range []float64{1, 4} {
		s := benchStep(b, most)
		s.Rounds = NewRounds(s.Network, s.Mesh, nil, schedule.Sums{})
		b.Run(fmt.Sprintf("delay=%v", most), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Number++
				Replicas(s, cuts, layers)
			}
		})
	}
}
