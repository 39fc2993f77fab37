package moe

import (
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/piece"
)

// countsOf returns what layers count whose experts have rows as a function says.
func countsOf(layers, microbatches int, rows func(layer int) []int64) (list []cost.CountSum) {
	for l := range layers {
		list = append(list, cost.CountSum{Name: assigned.Name, Layer: l, Microbatches: microbatches, Values: append(make([]int64, countsFrom), rows(l)...)})
	}
	return list
}

// TestProposals: a hot expert gets copies, with owners where they are; even loads and equal
// rows again take them away.
func TestProposals(t *testing.T) {
	p := newPlacing(placeCopies, 8, 4, 1, 1)
	p.weights, p.sums = 10, 20
	var pieces piece.Assignment
	hot := func(int) []int64 { return []int64{6000, 1000, 1000, 1000, 1000, 1000, 1000, 1000} }
	for range 3 {
		p.Observe(countsOf(2, 4, hot))
		list := p.Propose(dynamic.Question{Present: pieces})
		pieces = p.Take(pieces, list)
	}
	m := pieces.Block(0)
	if len(m[0]) < 3 {
		t.Fatalf("%s: want at least two copies of the first expert", pieces)
	}
	for e, on := range m {
		if on[0] != e/2 {
			t.Errorf("expert %d moves to %d", e, on[0])
		}
	}
	if load := p.Load(pieces, 1, append(make([]int64, countsFrom), hot(0)...)); load > 1.1 {
		t.Errorf("the fullest replica has %v times its share", load)
	}
	// The owner of the hot expert receives the sums of three copies, and weights for a copy of its own.
	if copied := p.Copied(pieces)[0]; copied != 70 {
		t.Errorf("%d bytes for copies, want 70: %s", copied, pieces)
	}
	for range 10 {
		p.Observe(countsOf(2, 4, func(int) []int64 { return []int64{100, 100, 100, 100, 100, 100, 100, 100} }))
		pieces = p.Take(pieces, p.Propose(dynamic.Question{Present: pieces}))
	}
	if load := p.Load(pieces, 0, append(make([]int64, countsFrom), 100, 100, 100, 100, 100, 100, 100, 100)); load > 1.03 {
		t.Errorf("%s: even rows have %v", pieces, load)
	}
}

// BenchmarkDeciding is what placing takes after a step of 32 layers of 256 experts on 64
// replicas: where loads are noise about a fixed skew, and where they jump in every step.
func BenchmarkDeciding(b *testing.B) {
	for _, jumps := range []bool{false, true} {
		name := map[bool]string{false: "steady", true: "jumping"}[jumps]
		b.Run(name, func(b *testing.B) {
			rnd := rand.New(rand.NewPCG(1, 2))
			p, pieces, hot := newPlacing(placeCopies, 256, 64, 1, 256), piece.Assignment{}, rnd.Perm(256)
			step := func() []cost.CountSum {
				if jumps {
					hot = rnd.Perm(256)
				}
				return countsOf(32, 64*32, func(int) []int64 {
					rows := make([]int64, 256)
					for k, e := range hot {
						rows[e] = int64((0.8 + 0.4*rnd.Float64()) * 1e7 / float64(k+1))
					}
					return rows
				})
			}
			decide := func(counts []cost.CountSum) {
				p.Observe(counts)
				pieces = p.Take(pieces, p.Propose(dynamic.Question{Present: pieces}))
			}
			for range 10 {
				decide(step())
			}
			spent := 0.0
			for b.Loop() {
				counts := step()
				before := processSeconds()
				decide(counts)
				spent += processSeconds() - before
			}
			b.ReportMetric(1e3*spent/float64(b.N), "cpu-ms/step")
		})
	}
}

// processSeconds is the CPU time of all threads: the machine may be shared.
func processSeconds() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
