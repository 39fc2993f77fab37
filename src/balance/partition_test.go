package balance

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/partition/partitiontest"
)

func TestPartitionAgreesWithBruteForce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2)) // fixed seed: a failure must repeat
	infeasible := 0
	for n := range 4000 {
		p := randomProblem(rnd)
		addJoint(rnd, &p)
		want := bruteForce(p)
		got, err := Partition(p)
		if math.IsInf(want, 1) {
			infeasible++
			var memory *MemoryError
			if !errors.As(err, &memory) || memory.Missing < 1 {
				t.Fatalf("case %d %+v: error %v, want a memory error", n, p, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("case %d %+v: %v", n, p, err)
		}
		if got.Bottleneck != want || !got.Optimal {
			t.Fatalf("case %d %+v: cuts %v with bottleneck %v (optimal %v), want %v", n, p, got.Cuts, got.Bottleneck, got.Optimal, want)
		}
		if got.LowerBound > got.Bottleneck {
			t.Fatalf("case %d %+v: lower bound %v above bottleneck %v", n, p, got.LowerBound, got.Bottleneck)
		}
		if check, err := p.Evaluate(got.Cuts); err != nil || check.Bottleneck != want {
			t.Fatalf("case %d %+v: cuts %v evaluate to %v, %v", n, p, got.Cuts, check.Bottleneck, err)
		}
	}
	if infeasible < 100 || infeasible > 2000 {
		t.Fatalf("%d of 4000 cases have no solution; the test needs both kinds", infeasible)
	}
}

// TestLeastCapacity: with that many bytes on every stage some partition fits, with one byte less
// none does.
func TestLeastCapacity(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for n := range 1000 {
		p := randomProblem(rnd)
		addJoint(rnd, &p)
		least, err := p.LeastCapacity()
		expect.OK(t, err)
		for off, fits := range map[int64]bool{0: true, -1: false} {
			if p.Capacity = slices.Repeat([]int64{least + off}, p.Stages); least+off > 1 && math.IsInf(bruteForce(p), 1) == fits {
				t.Fatalf("case %d %+v: least capacity %d, with %d bytes a partition fits: %v", n, p, least, least+off, !fits)
			}
		}
	}
}

// TestPartitionAgreesWithProgramme takes chains that brute force cannot, with
// numbers whose sums round.
func TestPartitionAgreesWithProgramme(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	feasible := 0
	for n := range 400 {
		p := Problem{Stages: 1 + rnd.IntN(12), AllowEmpty: rnd.IntN(2) == 0}
		layers := p.Stages + rnd.IntN(50)
		total := int64(0)
		for range layers {
			p.Seconds = append(p.Seconds, math.Exp(40*rnd.Float64()-20)) // 2e-9 to 5e8
			p.StaticBytes = append(p.StaticBytes, rnd.Int64N(1e9))
			p.ActivationBytes = append(p.ActivationBytes, rnd.Int64N(1e7))
			p.HeldBytes = append(p.HeldBytes, rnd.Int64N(1e8))
			total += p.StaticBytes[len(p.StaticBytes)-1]
		}
		for s := range p.Stages {
			p.Slow = append(p.Slow, 0.5+rnd.Float64())
			p.Fixed = append(p.Fixed, rnd.ExpFloat64())
			p.InFlight = append(p.InFlight, p.Stages-s)
			p.Between = append(p.Between, 1+rnd.IntN(3))
			p.Capacity = append(p.Capacity, int64(float64(total)/float64(p.Stages)*(1+1.5*rnd.Float64())))
		}
		c, err := newChain(p)
		expect.OK(t, err)
		want := programme(c, noBoundary)
		got, err := Partition(p)
		if math.IsInf(want, 1) {
			if err == nil {
				t.Fatalf("case %d: cuts %v for a problem without solution", n, got.Cuts)
			}
			continue
		}
		feasible++
		if err != nil || got.Bottleneck != want {
			t.Fatalf("case %d: bottleneck %v, want %v (%v)", n, got.Bottleneck, want, err)
		}
	}
	if feasible < 200 {
		t.Fatalf("only %d of 400 cases have a solution", feasible)
	}
}

func TestPartitionKnownCases(t *testing.T) {
	for _, tc := range []struct {
		name    string
		seconds []float64
		stages  int
		want    float64
		cuts    partition.Partition
	}{
		// The weights on which DeepSpeed's max-min programme gives 5
		// (runtime/utils.py, partition_balanced).
		{"deepspeed counter-example", []float64{1, 4, 2, 2}, 3, 4, partition.Partition{0, 1, 2, 4}},
		{"early stages longest", []float64{1, 1, 1, 1, 1, 1, 1}, 3, 3, partition.Partition{0, 3, 6, 7}},
		{"one layer each", []float64{1, 5, 1}, 3, 5, partition.Partition{0, 1, 2, 3}},
		{"one stage", []float64{3, 4}, 1, 7, partition.Partition{0, 2}},
		{"head dominates", []float64{1, 1, 1, 1, 16}, 4, 16, partition.Partition{0, 2, 3, 4, 5}},
		{"nothing costs anything", []float64{0, 0, 0}, 2, 0, partition.Partition{0, 2, 3}},
		{"sum rounds up", []float64{0.1, 0.1, 0.1}, 3, 0.1, partition.Partition{0, 1, 2, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Partition(Problem{Seconds: tc.seconds, Stages: tc.stages})
			expect.OK(t, err)
			if math.Abs(got.Bottleneck-tc.want) > 1e-15*tc.want || !got.Cuts.Equal(tc.cuts) {
				t.Errorf("cuts %v with bottleneck %v, want %v with %v", got.Cuts, got.Bottleneck, tc.cuts, tc.want)
			}
		})
	}
}

// TestPartitionScale wants the same cuts whatever unit seconds are in.
func TestPartitionScale(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		seconds := make([]float64, 40)
		for l := range seconds {
			seconds[l] = 1 + float64(rnd.IntN(1000))
		}
		base, err := Partition(Problem{Seconds: seconds, Stages: 7})
		expect.OK(t, err)
		for _, scale := range []float64{math.Ldexp(1, -30), 1e-9, 1e-3, 1e3, 1e9, math.Ldexp(1, 30)} {
			scaled := make([]float64, len(seconds))
			for l := range seconds {
				scaled[l] = scale * seconds[l]
			}
			got, err := Partition(Problem{Seconds: scaled, Stages: 7})
			expect.OK(t, err)
			if Gap(got.Bottleneck, scale*base.Bottleneck) > 1e-13 {
				t.Fatalf("scale %v: bottleneck %v, want %v", scale, got.Bottleneck, scale*base.Bottleneck)
			}
		}
	}
}

// TestPartitionNoPeerIsBetter is law 5 on chains too long for brute force: no
// neighbour of the cuts, no other balancer and no random cuts are better.
func TestPartitionNoPeerIsBetter(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for n := range 30 {
		p := Problem{Seconds: make([]float64, 200+rnd.IntN(200)), Stages: 2 + rnd.IntN(60)}
		for l := range p.Seconds {
			p.Seconds[l] = rnd.ExpFloat64()
		}
		got, err := Partition(p)
		expect.OK(t, err)
		peers := []partition.Partition{}
		for s := 1; s < p.Stages; s++ {
			for _, step := range []int{-1, 1} {
				q := slices.Clone(got.Cuts)
				q[s] += step
				peers = append(peers, q)
			}
		}
		for range 200 {
			peers = append(peers, partitiontest.Random(rnd, p.Layers(), p.Stages))
		}
		uniform, err := Uniform(p)
		expect.OK(t, err)
		diffused, _, err := Diffusion(p, uniform.Cuts, DiffusionOptions{})
		expect.OK(t, err)
		peers = append(peers, uniform.Cuts, diffused.Cuts)
		for _, q := range peers {
			if q.Check(p.Layers(), p.Stages, true) != nil {
				continue
			}
			if r, err := p.Evaluate(q); err != nil || r.Bottleneck < got.Bottleneck {
				t.Fatalf("case %d: peer %v has bottleneck %v, below %v (%v)", n, q, r.Bottleneck, got.Bottleneck, err)
			}
		}
	}
}

func TestPartitionMemoryErrors(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    Problem
		want MemoryError
	}{
		{"a layer fits nowhere", Problem{
			Names: []string{"embedding", "block.0", "head"}, Seconds: []float64{1, 1, 1}, Stages: 2,
			StaticBytes: []int64{5, 5, 50}, Capacity: []int64{30, 40},
		}, MemoryError{Layer: 2, Name: "layer 2 (head)", Stage: 1, Missing: 10}},
		{"the sum is short", Problem{
			Seconds: []float64{1, 1, 1, 1}, Stages: 2, StaticBytes: []int64{10, 10, 10, 10}, Capacity: []int64{17, 17},
		}, MemoryError{Layer: -1, Stage: -1, Missing: 3}},
		{"activations in flight", Problem{ // stage 0 holds 4 + 3·5, stage 1 8 + 1·10
			Seconds: []float64{1, 1, 1}, Stages: 2, StaticBytes: []int64{4, 4, 4}, ActivationBytes: []int64{5, 5, 5},
			InFlight: []int{3, 1}, Capacity: []int64{19, 17},
		}, MemoryError{Layer: -1, Stage: -1, Missing: 1}},
		{"between the backwards", Problem{ // stage 0 holds 4 + 1·5 + 2·2, stage 1 8 + 1·10 + 3·4
			Seconds: []float64{1, 1, 1}, Stages: 2, StaticBytes: []int64{4, 4, 4}, ActivationBytes: []int64{5, 5, 5},
			HeldBytes: []int64{2, 2, 2}, Between: []int{2, 3}, Capacity: []int64{13, 28},
		}, MemoryError{Layer: -1, Stage: -1, Missing: 2}},
		{"a stage is full without layers", Problem{
			Seconds: []float64{1}, Stages: 2, AllowEmpty: true, Capacity: []int64{9, 9}, FixedBytes: []int64{0, 12},
		}, MemoryError{Layer: -1, Stage: 1, Missing: 3}},
		{"a layer for every stage", Problem{ // the big layer fits only on stage 1, which is then last
			Seconds: []float64{1, 1, 1}, Stages: 3, StaticBytes: []int64{1, 1, 9}, Capacity: []int64{2, 10, 5},
		}, MemoryError{Layer: -1, Stage: -1, Missing: 4}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Partition(tc.p)
			var got *MemoryError
			if !errors.As(err, &got) {
				t.Fatalf("error %v, want a memory error", err)
			}
			if *got != tc.want {
				t.Fatalf("got %+v, want %+v", *got, tc.want)
			}
			for s := range tc.p.Capacity { // with the missing bytes it must fit, unless one stage is to blame
				if tc.want.Stage < 0 || tc.want.Stage == s {
					tc.p.Capacity[s] += tc.want.Missing
				}
			}
			if _, err := Partition(tc.p); err != nil {
				t.Fatalf("with the missing bytes: %v", err)
			}
		})
	}
}

func TestCheckNamesTheField(t *testing.T) {
	good := Problem{Seconds: []float64{1, 2}, Stages: 2}
	for _, tc := range []struct {
		field string
		spoil func(*Problem)
	}{
		{"stages", func(p *Problem) { p.Stages = 0 }},
		{"stages", func(p *Problem) { p.Stages = 3 }},
		{"seconds", func(p *Problem) { p.Seconds = nil }},
		{"seconds[1]", func(p *Problem) { p.Seconds = []float64{1, math.NaN()} }},
		{"seconds[0]", func(p *Problem) { p.Seconds = []float64{-1, 1} }},
		{"seconds[0]", func(p *Problem) { p.Seconds = []float64{math.Inf(1), 1} }},
		{"seconds", func(p *Problem) { p.Seconds = []float64{1e308, 1e308} }},
		{"slow[0]", func(p *Problem) { p.Slow = []float64{0, 1} }},
		{"slow", func(p *Problem) { p.Slow = []float64{1} }},
		{"fixed_seconds[1]", func(p *Problem) { p.Fixed = []float64{0, math.NaN()} }},
		{"bytes[0]", func(p *Problem) { p.StaticBytes = []int64{-1, 1} }},
		{"bytes", func(p *Problem) { p.StaticBytes = []int64{1 << 62, 1 << 62} }},
		{"activation_bytes", func(p *Problem) { p.ActivationBytes = []int64{1} }},
		{"held_bytes", func(p *Problem) { p.HeldBytes = []int64{1} }},
		{"held_bytes[0]", func(p *Problem) { p.HeldBytes = []int64{-1, 1} }},
		{"held_bytes", func(p *Problem) { p.HeldBytes, p.Between = []int64{1 << 51, 1 << 51}, []int{1, 2} }},
		{"between", func(p *Problem) { p.Between = []int{1} }},
		{"between[1]", func(p *Problem) { p.Between = []int{1, -1} }},
		{"in_flight[1]", func(p *Problem) { p.InFlight = []int{1, -1} }},
		{"capacity_bytes[1]", func(p *Problem) { p.Capacity = []int64{1, -1} }},
		{"names", func(p *Problem) { p.Names = []string{"a"} }},
	} {
		p := good
		tc.spoil(&p)
		_, err := Partition(p)
		if err == nil || !strings.HasPrefix(err.Error(), tc.field+":") {
			t.Errorf("error %q, want one about %q", fmt.Sprint(err), tc.field)
		}
	}
	if _, err := Partition(good); err != nil {
		t.Error(err)
	}
}
