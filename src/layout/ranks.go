package layout

import (
	"fmt"
	"slices"
)

// World returns the rank in the launched world of a rank of the mesh.
func (l Layout) World(rank int) int {
	if l.Ranks == nil {
		return rank
	}
	return l.Ranks[rank]
}

// WorldRanks returns the rank in the launched world of every rank of the mesh.
func (l Layout) WorldRanks() []int {
	list := make([]int, l.Mesh.Size())
	for rank := range list {
		list[rank] = l.World(rank)
	}
	return list
}

// Place returns the rank in the mesh of a rank of the launched world; ok is false if the mesh does
// not use that rank.
func (l Layout) Place(world int) (rank int, ok bool) {
	if l.Ranks == nil {
		return world, world < l.Mesh.Size()
	}
	rank = slices.Index(l.Ranks, world)
	return rank, rank >= 0
}

// SameRanks reports whether two layouts have the same numbers of stages and replicas on the same
// ranks.
func (l Layout) SameRanks(other Layout) bool {
	if l.Mesh != other.Mesh {
		return false
	}
	for rank := range max(len(l.Ranks), len(other.Ranks)) {
		if l.World(rank) != other.World(rank) {
			return false
		}
	}
	return true
}

// checkRanks returns an error unless Ranks has one rank for each rank of the mesh and none twice.
// The first rank of the launched world must be the first of the mesh, because it writes the
// records.
func (l Layout) checkRanks() error {
	if l.Ranks == nil {
		return nil
	}
	if n := len(l.Ranks); n != l.Mesh.Size() {
		return fmt.Errorf("ranks: %d, want %d: one for each of %d stages and %d replicas", n, l.Mesh.Size(), l.Mesh.Stages, l.Mesh.Replicas)
	}
	if l.Ranks[0] != 0 {
		return fmt.Errorf("ranks: %d is the first, want rank 0", l.Ranks[0])
	}
	seen := make(map[int]bool, len(l.Ranks))
	for _, rank := range l.Ranks {
		if rank < 0 || rank >= mostRanks {
			return fmt.Errorf("ranks: %d, want 0 to %d", rank, mostRanks-1)
		}
		if seen[rank] {
			return fmt.Errorf("ranks: %d is there twice", rank)
		}
		seen[rank] = true
	}
	return nil
}

// Move is a layer of a replica that moves from one rank of the launched world to another.
type Move struct {
	Layer, Replica int
	From, To       int
}

// Moves returns the moves from layout present to layout next, sorted by layer, then by replica. Both
// layouts must have the same chain and number of replicas. A rank that already has a layer receives
// nothing, even if the rank changes its replica, because replicas are equal. The exception are layers
// for which own returns true: there every replica has different parameters, and a rank that changes
// its replica receives those of the new replica.
func Moves(present, next Layout, own func(layer int) bool) []Move {
	if present.Mesh.Replicas != next.Mesh.Replicas || present.Cuts.Layers() != next.Cuts.Layers() {
		panic("layout: moves between layouts of other replicas or another chain")
	}
	before, after := present.Owners(), next.Owners()
	same := present.SameRanks(next)
	earlier := make([]int, next.Mesh.Size()) // by rank of the next mesh: its rank in the present mesh; -1: none
	for rank := range earlier {
		earlier[rank] = rank
		if same {
			continue
		}
		earlier[rank] = -1
		if place, ok := present.Place(next.World(rank)); ok {
			earlier[rank] = place
		}
	}
	var moves []Move
	for layer := range before {
		if same && before[layer] == after[layer] {
			continue
		}
		for replica := range next.Mesh.Replicas {
			rank := next.Mesh.Rank(after[layer], replica)
			if r := earlier[rank]; r >= 0 && present.Mesh.Stage(r) == before[layer] && (present.Mesh.Replica(r) == replica || !own(layer)) {
				continue // the rank has the layer
			}
			from := present.Mesh.Rank(before[layer], replica)
			moves = append(moves, Move{layer, replica, present.World(from), next.World(rank)})
		}
	}
	return moves
}
