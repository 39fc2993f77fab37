package place

import (
	"math/rand/v2"
	"slices"
	"testing"

	"dynmo/src/piece"
)

// randomMap returns a map of experts on replicas, each with up to two copies.
func randomMap(rnd *rand.Rand, experts, replicas int) piece.Map {
	m := make(piece.Map, experts)
	for e := range m {
		on := rnd.Perm(replicas)[:1+rnd.IntN(min(3, replicas))]
		slices.Sort(on[1:])
		m[e] = on
	}
	return m
}

// TestDealAgainstBruteForce: the fullest replica of small cases has at most one block more than
// where all ways to deal blocks are tried.
func TestDealAgainstBruteForce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2)) // fixed seed: a failure must repeat
	var d Dealer
	worst := 0
	for range 300 {
		experts, replicas := 1+rnd.IntN(4), 1+rnd.IntN(3)
		m, rows := randomMap(rnd, experts, replicas), make([]int, experts)
		for e := range rows {
			rows[e] = rnd.IntN(8)
		}
		shares := d.Deal(m, rows, 1, replicas)
		loads := make([]int64, replicas)
		for e, on := range m {
			sum := int64(0)
			for i, replica := range on {
				loads[replica] += shares[e][i]
				sum += shares[e][i]
			}
			if sum != int64(rows[e]) {
				t.Fatalf("%v, rows %v: expert %d has %v", m, rows, e, shares[e])
			}
		}
		if !slices.Equal(loads, d.Loads) {
			t.Fatalf("%v, rows %v: loads %v, want %v", m, rows, d.Loads, loads)
		}
		best := fewest(m, rows, 0, make([]int64, replicas))
		if over := slices.Max(loads) - best; over > 1 {
			t.Fatalf("%v, rows %v: the fullest has %d, want %d", m, rows, slices.Max(loads), best)
		} else if over > 0 {
			worst++
		}
	}
	if worst > 10 {
		t.Errorf("%d of 300 cases are a block off the best", worst)
	}
}

// fewest returns the rows of the fullest replica of the best deal of the experts from one on.
func fewest(m piece.Map, rows []int, expert int, loads []int64) int64 {
	if expert == len(m) {
		return slices.Max(loads)
	}
	best := int64(1 << 40)
	var give func(holder, left int)
	give = func(holder, left int) {
		if holder == len(m[expert])-1 {
			loads[m[expert][holder]] += int64(left)
			best = min(best, fewest(m, rows, expert+1, loads))
			loads[m[expert][holder]] -= int64(left)
			return
		}
		for n := range left + 1 {
			loads[m[expert][holder]] += int64(n)
			give(holder+1, left-n)
			loads[m[expert][holder]] -= int64(n)
		}
	}
	give(0, rows[expert])
	return best
}

// TestDealWholeBlocks: blocks stay whole, the last one may be short.
func TestDealWholeBlocks(t *testing.T) {
	var d Dealer
	got := d.Deal(piece.Map{{0, 1, 2}, {1}, {2}}, []int{1000, 300, 10}, 256, 3)
	if want := [][]int64{{2, 0, 2}, {2}, {1}}; !slices.EqualFunc(got, want, slices.Equal[[]int64]) {
		t.Errorf("%v, want %v", got, want)
	}
	if want := []int64{512, 300, 10 + 1000 - 512}; !slices.Equal(d.Loads, want) {
		t.Errorf("loads %v, want %v", d.Loads, want)
	}
}
