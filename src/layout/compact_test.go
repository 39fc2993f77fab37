package layout

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/partition/partitiontest"
	"dynmo/src/random"
	"dynmo/src/schedule"
)

// drawn returns a layout of a chain at random cuts.
func drawn(t testing.TB, key uint64, layers, stages, replicas int, order RankOrder) Layout {
	t.Helper()
	s, err := schedule.New(schedule.Kind1F1B, stages, 1, 1)
	expect.OK(t, err)
	return New(partitiontest.Random(random.Keyed(key), layers, stages), s, replicas, order)
}

// nodesOf returns the nodes of a next layout's ranks, and the bytes that move to it.
func nodesOf(present, next Layout, nodes []int, bytes []int64) bill {
	used := make(map[int]bool)
	for rank := range next.Mesh.Size() {
		used[nodes[next.World(rank)]] = true
	}
	b := bill{nodes: len(used)}
	for _, m := range Moves(present, next, func(int) bool { return false }) {
		b.bytes += bytes[m.Layer]
	}
	return b
}

// bruteForce tries all choices of ranks in their order, the first among them, and returns the
// least bill.
func bruteForce(present, next Layout, nodes []int, bytes []int64) bill {
	least := bill{nodes: math.MaxInt}
	n := present.Mesh.Size()
	for set := range 1 << n {
		next.Ranks = nil
		for rank := range n {
			if set>>rank&1 == 1 {
				next.Ranks = append(next.Ranks, present.World(rank))
			}
		}
		if set&1 == 0 || len(next.Ranks) != next.Mesh.Size() {
			continue
		}
		if b := nodesOf(present, next, nodes, bytes); b.less(least) {
			least = b
		}
	}
	return least
}

// TestCompactAgreesWithBruteForce tries all ranks in the order of the present mesh, with the first
// among them. None lie on fewer nodes, or on as many with fewer bytes that move. Nodes have
// neighbouring ranks or any ranks, and sizes vary. A second packing begins with the ranks that are
// left.
func TestCompactAgreesWithBruteForce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for i := range uint64(300) {
		order := []RankOrder{StageMajor, ReplicaMajor}[rnd.IntN(2)]
		replicas := 1 + rnd.IntN(3)
		stages := 2 + rnd.IntN(10/replicas-1)
		layers := stages + rnd.IntN(6)
		present := drawn(t, i, layers, stages, replicas, order)
		nodes, bytes := make([]int, present.Mesh.Size()), make([]int64, layers)
		for rank := range nodes {
			switch i % 3 {
			case 0: // neighbours
				nodes[rank] = rank / (1 + int(i%4))
			case 1: // in turn
				nodes[rank] = rank % 3
			default:
				nodes[rank] = rnd.IntN(4)
			}
		}
		for l := range bytes {
			bytes[l] = rnd.Int64N(5)
		}
		for present.Stages() > 1 {
			next := drawn(t, i+1000, layers, 1+rnd.IntN(present.Stages()-1), replicas, order)
			next.Ranks = Compact(present, next, nodes, bytes)
			expect.OK(t, next.Check(layers))
			name := fmt.Sprintf("nodes %v, %d to %d stages, %d replicas, %s", nodes, present.Stages(), next.Stages(), replicas, order)
			last := -1
			for rank := range next.Mesh.Size() {
				place, ok := present.Place(next.World(rank))
				if !ok || place <= last {
					t.Fatalf("%s: ranks %v of %v are not in their order", name, next.Ranks, present.Ranks)
				}
				last = place
			}
			if got, want := nodesOf(present, next, nodes, bytes), bruteForce(present, next, nodes, bytes); got != want {
				t.Fatalf("%s: ranks %v of %v: %+v, want %+v", name, next.Ranks, present.Ranks, got, want)
			}
			present = next
		}
	}
}

func TestCompact(t *testing.T) {
	line := func(stages int, cuts ...int) Layout {
		s := legal(t, schedule.Kind1F1B, stages, 1, 1)
		return New(partition.Partition(cuts), s, 1, StageMajor)
	}
	four := line(4, 0, 2, 4, 6, 8)
	ones := slices.Repeat([]int64{1}, 8)
	for _, c := range []struct {
		name  string
		next  Layout
		nodes []int
		want  []int
	}{
		{"all stay", four, []int{0, 0, 1, 1}, nil},
		{"the first where bytes are equal", line(2, 0, 4, 8), []int{0, 0, 0, 0}, []int{0, 2}},
		{"one node before fewest bytes", line(2, 0, 4, 8), []int{0, 0, 1, 1}, nil},
		{"nodes in turn", line(2, 0, 4, 8), []int{0, 1, 0, 1}, []int{0, 2}},
		{"fewest bytes on one node", line(3, 0, 2, 4, 8), []int{0, 0, 0, 0}, nil},
		{"a middle rank goes", line(3, 0, 2, 6, 8), []int{0, 0, 0, 0}, []int{0, 1, 3}},
	} {
		if got := Compact(four, c.next, c.nodes, ones); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
