package layouts

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/schedule"
)

// rivalCuts returns the cuts of the nearest rival: a dynamic programme that minimises the largest virtual
// stage, then single cuts that move by one layer as long as the largest stage, with all its chunks,
// shrinks.
func rivalCuts(v *solver) []int {
	n, k := v.units(), v.virtual()
	best := make([][]float64, k+1) // by virtual stages and units: the least largest virtual stage
	from := make([][]int, k+1)
	for s := range best {
		best[s], from[s] = slices.Repeat([]float64{math.Inf(1)}, n+1), make([]int, n+1)
	}
	best[0][0] = 0
	for s := 1; s <= k; s++ {
		for hi := s; hi <= n; hi++ {
			for lo := s - 1; lo < hi; lo++ {
				if x := max(best[s-1][lo], v.between(lo, hi).Seconds()); x < best[s][hi] {
					best[s][hi], from[s][hi] = x, lo
				}
			}
		}
	}
	units := make([]int, k+1)
	units[k] = n
	for s := k; s > 1; s-- {
		units[s-1] = from[s][units[s]]
	}
	fullest := func() float64 {
		busy := make([]float64, v.Stages)
		for s := range k {
			busy[v.schedule.Map.Stage(s)] += v.between(units[s], units[s+1]).Seconds()
		}
		return slices.Max(busy)
	}
	now := fullest()
	for improved := true; improved; {
		improved = false
		for s := 1; s < k; s++ {
			for _, by := range []int{1, -1} {
				units[s] += by
				if after := fullest(); units[s] > units[s-1] && units[s] < units[s+1] && after < now-1e-12 {
					now, improved = after, true
				} else {
					units[s] -= by
				}
			}
		}
	}
	return units
}

// TestRival: on random chains the search is never worse than the rival, and with chunks it is better on
// most, even with a twentieth of its budget.
func TestRival(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	better, chunked, gain := 0, 0, 0.0
	for n := range 100 {
		p := Problem{Stages: 2 + rnd.IntN(7), Chunks: 1 + rnd.IntN(4), Schedule: schedule.Kind1F1B}
		p.Microbatches = p.Stages * (1 + rnd.IntN(6))
		if p.Chunks > 1 {
			p.Schedule = schedule.KindInterleaved
		}
		for range p.Stages*p.Chunks + rnd.IntN(60) {
			f, back := 0.5+rnd.Float64(), 1.5+rnd.Float64()
			p.Layers = append(p.Layers, cost.Layer{Forward: f, BackwardInput: back * f / 2, BackwardWeight: back * f / 2})
		}
		head := 4 * rnd.Float64()
		p.Layers = append(p.Layers, cost.Layer{Forward: head, BackwardInput: head, BackwardWeight: head})
		p.CanCut = everywhere(p.Layers)
		v, err := newSolver(p)
		if err != nil {
			t.Fatal(err)
		}
		rival := v.evaluate(rivalCuts(v))
		found, err := findBest(budget/20, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		ours := found.Best[0].Seconds
		if ours > rival*(1+1e-9) {
			t.Errorf("case %d: %d layers on %d x %d, %d microbatches: %.4f s, the rival %.4f", n, len(p.Layers), p.Stages, p.Chunks, p.Microbatches, ours, rival)
		}
		if p.Chunks > 1 {
			chunked++
			gain += rival/ours - 1
			if ours < rival*(1-1e-9) {
				better++
			}
		}
	}
	t.Logf("better on %d of %d cases with chunks, by %.1f %% in the mean", better, chunked, 100*gain/float64(chunked))
	if 10*better < 9*chunked {
		t.Errorf("better on %d of %d cases with chunks, want most", better, chunked)
	}
}
