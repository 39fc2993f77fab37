package layout

import (
	"slices"
	"testing"

	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// TestRanks: a layout without ranks is one on the first ranks, in a file too short to say so.
func TestRanks(t *testing.T) {
	l := New(partition.Partition{0, 1, 3}, legal(t, schedule.Kind1F1B, 2, 1, 2), 2, StageMajor)
	same, other := l, l
	same.Ranks, other.Ranks = []int{0, 1, 2, 3}, []int{0, 2, 5, 9}
	if !l.Equal(same) || !same.Equal(l) || l.Equal(other) || other.Equal(l) {
		t.Error("equal layouts are not, or others are")
	}
	for world, want := range map[int]int{0: 0, 2: 1, 5: 2, 9: 3, 1: -1, 10: -1} {
		if rank, ok := other.Place(world); rank != want || ok != (want >= 0) || ok && other.World(rank) != world {
			t.Errorf("rank %d of the world is %d, want %d", world, rank, want)
		}
	}
	if _, ok := l.Place(4); ok {
		t.Error("rank 4 is one of 4")
	}
	if next := other.With(l.Cuts, l.Schedule); !next.Equal(other) {
		t.Errorf("other cuts are on ranks %v", next.Ranks)
	}
}

func TestMoves(t *testing.T) {
	of := func(order RankOrder, ranks []int, cuts ...int) Layout {
		l := New(partition.Partition(cuts), legal(t, schedule.Kind1F1B, len(cuts)-1, 1, 2), 2, order)
		l.Ranks = ranks
		return l
	}
	shared := func(int) bool { return false }
	three := of(StageMajor, nil, 0, 2, 3, 4)
	for _, c := range []struct {
		name          string
		present, next Layout
		own           func(int) bool
		want          []Move
	}{
		{"nothing", three, three, shared, nil},
		{"within stages", three, of(StageMajor, nil, 0, 1, 3, 4), shared, []Move{{1, 0, 0, 2}, {1, 1, 1, 3}}},
		{"the first stay", three, of(StageMajor, nil, 0, 2, 4), shared, []Move{{3, 0, 4, 2}, {3, 1, 5, 3}}},
		{"others stay", three, of(StageMajor, []int{0, 1, 4, 5}, 0, 2, 4), shared, []Move{{2, 0, 2, 4}, {2, 1, 3, 5}}},
		// Rank 2 becomes replica 1 of the first stage, rank 4 replica 0 of the second.
		{"another stage and replica", three, of(StageMajor, []int{0, 2, 4, 5}, 0, 2, 4), shared,
			[]Move{{0, 1, 1, 2}, {1, 1, 1, 2}, {2, 0, 2, 4}, {2, 1, 3, 5}}},
		// Ranks 4 and 5 change places.
		{"shared by replicas", three, of(StageMajor, []int{0, 1, 2, 3, 5, 4}, 0, 2, 3, 4), shared, nil},
		{"own of replicas", three, of(StageMajor, []int{0, 1, 2, 3, 5, 4}, 0, 2, 3, 4), func(l int) bool { return l == 3 },
			[]Move{{3, 0, 4, 5}, {3, 1, 5, 4}}},
		// Ranks 0, 1 are replica 0; 2, 3 were, and are replica 1 from the second on.
		{"replica-major", of(ReplicaMajor, nil, 0, 2, 3, 4), of(ReplicaMajor, nil, 0, 2, 4), shared,
			[]Move{{0, 1, 3, 2}, {1, 1, 3, 2}, {3, 0, 2, 1}, {2, 1, 4, 3}, {3, 1, 5, 3}}},
	} {
		got := Moves(c.present, c.next, c.own)
		want := slices.Clone(c.want)
		slices.SortFunc(want, func(a, b Move) int { return 2*(a.Layer-b.Layer) + a.Replica - b.Replica })
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
	}
}
