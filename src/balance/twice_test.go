package balance

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// TestTwiceAgreesWithBruteForce: in 500 small chains layers of up to three classes may compute
// twice. The bottleneck of Partition is the least over all cuts and all choices of layers.
func TestTwiceAgreesWithBruteForce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(31, 2))
	chains, full, twice := 500, 0, 0
	for range chains {
		p := twiceProblem(rnd)
		want := bruteTwice(p, 0, 0)
		r, err := Partition(p)
		if _, lacks := errors.AsType[*MemoryError](err); lacks {
			full++
			if !math.IsInf(want, 1) {
				t.Fatalf("%+v: %v, want a bottleneck of %v", p, err, want)
			}
			continue
		}
		if err != nil || r.Bottleneck != want {
			t.Fatalf("%+v: bottleneck %v at %v (%v), want %v", p, r.Bottleneck, r.Cuts, err, want)
		}
		plain := p
		plain.TwiceBytes, plain.TwiceAgain, plain.TwiceSeconds = nil, nil, nil
		if q, err := Partition(plain); err != nil || q.Bottleneck > r.Bottleneck {
			twice++
		}
	}
	if full < chains/20 || twice < chains/5 {
		t.Errorf("of %d chains %d do not fit, and %d gain by computing twice", chains, full, twice)
	}
}

// twiceProblem is a chain of at most seven layers of three classes on at most three stages.
func twiceProblem(rnd *rand.Rand) Problem {
	p := Problem{Stages: 1 + rnd.IntN(3)}
	type class struct {
		seconds, twice      float64
		static, kept, saved int64
		again               int64
	}
	classes := make([]class, 1+rnd.IntN(3))
	for i := range classes {
		classes[i] = class{float64(1 + rnd.IntN(8)), float64(rnd.IntN(4)), rnd.Int64N(6), rnd.Int64N(3), rnd.Int64N(6), rnd.Int64N(4)}
	}
	for range p.Stages + rnd.IntN(8-p.Stages) {
		c := classes[rnd.IntN(len(classes))]
		p.Seconds, p.TwiceSeconds = append(p.Seconds, c.seconds), append(p.TwiceSeconds, c.twice)
		p.StaticBytes = append(p.StaticBytes, c.static)
		p.ActivationBytes, p.TwiceBytes = append(p.ActivationBytes, c.kept+c.saved), append(p.TwiceBytes, c.kept)
		p.AgainBytes, p.TwiceAgain = append(p.AgainBytes, 0), append(p.TwiceAgain, c.again)
	}
	for s := range p.Stages {
		p.InFlight, p.Recomputed = append(p.InFlight, p.Stages-s), append(p.Recomputed, 1+rnd.IntN(2))
		p.Capacity = append(p.Capacity, 4+rnd.Int64N(40))
	}
	return p
}

// bruteTwice returns the least bottleneck of the layers from b on over the stages from a first
// one on.
func bruteTwice(p Problem, stage, b int) float64 {
	layers := p.Layers()
	if stage == p.Stages {
		if b == layers {
			return 0
		}
		return math.Inf(1)
	}
	least := math.Inf(1)
	for e := b + 1; e <= layers; e++ {
		own := math.Inf(1)
		for set := range 1 << (e - b) {
			seconds, bytes := 0.0, int64(0)
			for l := b; l < e; l++ {
				seconds, bytes = seconds+p.Seconds[l], bytes+p.StaticBytes[l]
				if set>>(l-b)&1 == 1 {
					seconds += p.TwiceSeconds[l]
					bytes += int64(p.InFlight[stage])*p.TwiceBytes[l] + int64(p.Recomputed[stage])*p.TwiceAgain[l]
				} else {
					bytes += int64(p.InFlight[stage]) * p.ActivationBytes[l]
				}
			}
			if bytes <= p.Capacity[stage] {
				own = min(own, seconds)
			}
		}
		least = min(least, max(own, bruteTwice(p, stage+1, e)))
	}
	return least
}

// TestLeastOfManyClasses: where all layers differ the choice of a few is exact, and that of many
// is close to its bound.
func TestLeastOfManyClasses(t *testing.T) {
	rnd := rand.New(rand.NewPCG(31, 3))
	for range 50 {
		list := make([]Saving, 1+rnd.IntN(12))
		need, all := int64(0), int64(0)
		for l := range list {
			list[l] = Saving{1 + rnd.Int64N(1000), rnd.Float64()}
			all += list[l].Bytes
		}
		need = rnd.Int64N(all + 1)
		want := math.Inf(1)
		for set := range 1 << len(list) {
			saved, seconds := int64(0), 0.0
			for l, s := range list {
				if set>>l&1 == 1 {
					saved, seconds = saved+s.Bytes, seconds+s.Seconds
				}
			}
			if saved >= need {
				want = min(want, seconds)
			}
		}
		got := Least(list, need)
		saved := int64(0)
		for l, s := range list {
			if got.Chosen[l] {
				saved += s.Bytes
			}
		}
		if saved < need || math.Abs(got.Seconds-want) > 1e-12 || got.Bound != got.Seconds {
			t.Fatalf("%v for %d bytes: %+v, want %v seconds", list, need, got, want)
		}
	}
	many := make([]Saving, 200)
	for l := range many {
		many[l] = Saving{1000 + rnd.Int64N(1000), 1 + rnd.Float64()}
	}
	if got := Least(many, 150_000); got.Seconds > 1.01*got.Bound || !(got.Bound > 0) {
		t.Errorf("of 200 layers that differ: %v seconds, bound %v", got.Seconds, got.Bound)
	}
}
