package balance

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"dynmo/src/expect"
)

// BenchmarkPartition times the exact balancer. Numbers to reach: 512 layers on
// 128 stages in 1 ms, 10,000 on 1,000 in 50 ms.
func BenchmarkPartition(b *testing.B) {
	for _, size := range []struct{ layers, stages int }{{512, 128}, {10_000, 1_000}} {
		for _, memory := range []bool{false, true} {
			p := benchProblem(size.layers, size.stages, memory)
			b.Run(fmt.Sprintf("layers=%d/stages=%d/memory=%v", size.layers, size.stages, memory), func(b *testing.B) {
				for b.Loop() {
					if _, err := Partition(p); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkFewestMoves times the exact balancer with the second programme.
func BenchmarkFewestMoves(b *testing.B) {
	p := benchProblem(512, 128, false)
	uniform, err := Uniform(p)
	expect.OK(b, err)
	for b.Loop() {
		if _, err := FewestMoves(p, uniform.Cuts, 1000, 1e9); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDiffusion times all phases in one process, without messages. Number to
// reach: 10,000 layers on 1,000 stages in 100 ms.
func BenchmarkDiffusion(b *testing.B) {
	for _, size := range []struct{ layers, stages int }{{96, 24}, {10_000, 1_000}} {
		p := benchProblem(size.layers, size.stages, false)
		uniform, err := Uniform(p)
		expect.OK(b, err)
		b.Run(fmt.Sprintf("layers=%d/stages=%d", size.layers, size.stages), func(b *testing.B) {
			for b.Loop() {
				if _, _, err := Diffusion(p, uniform.Cuts, DiffusionOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benchProblem returns a chain of layers that differ by 15 %, under memory
// limits that hold twice the mean or under none.
func benchProblem(layers, stages int, memory bool) Problem {
	rnd := rand.New(rand.NewPCG(31, 32))
	p := Problem{Stages: stages}
	for range layers {
		p.Seconds = append(p.Seconds, 0.85+0.3*rnd.Float64())
		p.StaticBytes = append(p.StaticBytes, 1<<20)
		p.ActivationBytes = append(p.ActivationBytes, 1<<12)
	}
	if memory {
		for s := range stages {
			p.InFlight = append(p.InFlight, min(32, stages-s))
			p.Capacity = append(p.Capacity, 2*int64(layers/stages)*(1<<20+1<<12*int64(p.InFlight[s])))
		}
	}
	return p
}
