package balance

import (
	"math"
	"math/rand/v2"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/partition/partitiontest"
)

// TestFewestMovesAgreesWithBruteForce tries all partitions for the least bytes
// within every slack and for the least price over the slacks.
func TestFewestMovesAgreesWithBruteForce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(21, 22))
	chosen := map[float64]int{}
	for n := range 3000 {
		p := randomProblem(rnd)
		addJoint(rnd, &p)
		p.MoveBytes = nil
		if n%2 == 0 && p.JointBytes == nil {
			p.Capacity = nil
		}
		for range p.Seconds {
			p.MoveBytes = append(p.MoveBytes, rnd.Int64N(100))
		}
		for l := range p.Seconds { // enough digits for slacks to matter
			p.Seconds[l] *= 1 + float64(rnd.IntN(8))/64
		}
		optimum := bruteForce(p)
		present := partitiontest.Random(rnd, max(p.Layers(), 2), 1+rnd.IntN(min(p.Layers(), 5)))
		if math.IsInf(optimum, 1) || present.Layers() != p.Layers() {
			continue
		}
		horizon, bandwidth := float64(rnd.IntN(3)), math.Exp(10*rnd.Float64())
		if optimum > 0 {
			horizon *= 1000 / optimum
		}
		best := math.Inf(1)
		slack := 0.0
		for _, share := range slacks {
			least := int64(math.MaxInt64)
			everyPartition(p, func(cuts partition.Partition, seconds []float64) {
				worst, moved := 0.0, int64(0)
				for _, x := range seconds {
					worst = max(worst, x)
				}
				for _, l := range present.Moved(cuts) {
					moved += p.MoveBytes[l]
				}
				if worst <= optimum+share*optimum {
					least = min(least, moved)
				}
			})
			c, err := newChain(p)
			expect.OK(t, err)
			move := c.moveBytes()
			cuts := c.keepMost(optimum+share*optimum, present, move)
			if got := movedBytes(cuts, present, move); got != least {
				t.Fatalf("case %d, slack %v: %v from %v moves %d bytes, want %d", n, share, cuts, present, got, least)
			}
			if b := c.bottleneck(cuts); b > optimum+share*optimum || !c.feasible(cuts, b) {
				t.Fatalf("case %d, slack %v: bottleneck %v, optimum %v", n, share, b, optimum)
			}
			if price := horizon*c.bottleneck(cuts) + float64(least)/bandwidth; price < best {
				best, slack = price, share
			}
		}
		chosen[slack]++
		got, err := FewestMoves(p, present, horizon, bandwidth)
		if err != nil {
			t.Fatalf("case %d: %v", n, err)
		}
		if price := horizon*got.Bottleneck + float64(got.MovedBytes)/bandwidth; price != best {
			t.Fatalf("case %d: price %v, want %v", n, price, best)
		}
		if got.Optimal != (got.Bottleneck == optimum) {
			t.Fatalf("case %d: optimal %v with bottleneck %v, optimum %v", n, got.Optimal, got.Bottleneck, optimum)
		}
	}
	if chosen[0] == 0 || chosen[0.05]+chosen[0.02]+chosen[0.01] == 0 {
		t.Errorf("slacks chosen: %v; the test needs more than one", chosen)
	}
}

func TestFewestMovesStaysWherePossible(t *testing.T) {
	p := Problem{Seconds: []float64{1, 1, 1, 1, 1, 1, 1}, StaticBytes: []int64{9, 9, 9, 9, 9, 9, 9}, Stages: 3}
	present := partition.Partition{0, 2, 4, 7} // as good as any: 2, 2, 3
	got, err := FewestMoves(p, present, 1e9, 1)
	if err != nil || !got.Cuts.Equal(present) || got.MovedBytes != 0 {
		t.Errorf("cuts %v move %d bytes (%v), want none", got.Cuts, got.MovedBytes, err)
	}
	if _, err := FewestMoves(p, partition.Partition{0, 5}, 1, 1); err == nil {
		t.Error("present cuts of another chain are accepted")
	}
}
