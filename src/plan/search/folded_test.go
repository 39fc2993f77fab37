package search

import (
	"math"
	"testing"

	"dynmo/src/partition"
	"dynmo/src/random"
)

// TestFoldedIsExact: on small chains the load of the most loaded stage is the least of
// all cuts, within what the bisection leaves.
func TestFoldedIsExact(t *testing.T) {
	for seed := range uint64(200) {
		rnd := random.Keyed(seed, 41)
		stages := 1 + rnd.IntN(3)
		m := partition.Map{Stages: stages, Chunks: 2, Vee: true}
		seconds, slow := make([]float64, 2*stages+rnd.IntN(5)), make([]float64, stages)
		for l := range seconds {
			seconds[l] = rnd.ExpFloat64()
		}
		for s := range slow {
			slow[s] = 1 + float64(rnd.IntN(2))*rnd.Float64()
		}
		load := func(cuts partition.Partition) float64 {
			loads := make([]float64, stages)
			for l, s := range m.Owners(cuts) {
				loads[s] += seconds[l] * slow[s]
			}
			most := 0.0
			for _, x := range loads {
				most = max(most, x)
			}
			return most
		}
		least := math.Inf(1)
		var try func(cuts partition.Partition)
		try = func(cuts partition.Partition) {
			if len(cuts) == 2*stages {
				least = min(least, load(append(cuts[:2*stages:2*stages], len(seconds))))
				return
			}
			for next := cuts[len(cuts)-1] + 1; next < len(seconds); next++ {
				try(append(cuts[:len(cuts):len(cuts)], next))
			}
		}
		try(partition.Partition{0})
		got := folded(seconds, slow)
		if err := got.Check(len(seconds), 2*stages, true); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if x := load(got); x > least*1.01 {
			t.Fatalf("seed %d: the most loaded stage takes %v at %v, %v is possible", seed, x, got, least)
		}
	}
}
