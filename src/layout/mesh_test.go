package layout

import (
	"strings"
	"testing"
)

func TestRanksAreOneToOne(t *testing.T) {
	for _, order := range []RankOrder{StageMajor, ReplicaMajor} {
		for stages := 1; stages <= 5; stages++ {
			for replicas := 1; replicas <= 4; replicas++ {
				m := Mesh{stages, replicas, order}
				seen := make([]bool, m.Size())
				for s := range stages {
					for d := range replicas {
						rank := m.Rank(s, d)
						if rank < 0 || rank >= m.Size() || seen[rank] {
							t.Fatalf("%+v: stage %d, replica %d is rank %d, out of range or taken", m, s, d, rank)
						}
						seen[rank] = true
						if m.Stage(rank) != s || m.Replica(rank) != d {
							t.Fatalf("%+v: rank %d is stage %d, replica %d, want %d, %d", m, rank, m.Stage(rank), m.Replica(rank), s, d)
						}
					}
				}
			}
		}
	}
}

func TestOrder(t *testing.T) {
	if got := (Mesh{4, 2, StageMajor}).Rank(3, 1); got != 7 { // replicas of a stage are neighbours
		t.Errorf("stage-major: stage 3, replica 1 is rank %d, want 7", got)
	}
	if got := (Mesh{4, 2, StageMajor}).Rank(1, 0); got != 2 {
		t.Errorf("stage-major: stage 1, replica 0 is rank %d, want 2", got)
	}
	if got := (Mesh{4, 2, ReplicaMajor}).Rank(1, 0); got != 1 { // stages of a replica are neighbours
		t.Errorf("replica-major: stage 1, replica 0 is rank %d, want 1", got)
	}
}

func TestCheck(t *testing.T) {
	m := Mesh{4, 2, StageMajor}
	if err := m.Check(8); err != nil {
		t.Error(err)
	}
	for _, world := range []int{0, 7, 9, 16} {
		if err := m.Check(world); err == nil || !strings.Contains(err.Error(), "4 x parallel.replicas 2 needs 8 ranks") || !strings.Contains(err.Error(), "start 8 (mpirun -np 8, srun -n 8), or ") {
			t.Errorf("world of %d: error %v", world, err)
		}
	}
}
