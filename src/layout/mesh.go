package layout

import "fmt"

// RankOrder is the order of ranks in the mesh.
type RankOrder string

const (
	StageMajor   RankOrder = "stage-major"   // rank = stage·Replicas + replica: the replicas of a stage are neighbours
	ReplicaMajor RankOrder = "replica-major" // rank = replica·Stages + stage: the stages of a pipeline are neighbours
)

// Mesh is the grid of ranks: Stages x Replicas.
type Mesh struct {
	Stages   int
	Replicas int
	Order    RankOrder
}

// Size returns the number of ranks, Stages·Replicas.
func (m Mesh) Size() int { return m.Stages * m.Replicas }

// Rank returns the world rank of a stage and replica.
func (m Mesh) Rank(stage, replica int) int {
	if m.Order == ReplicaMajor {
		return replica*m.Stages + stage
	}
	return stage*m.Replicas + replica
}

// Stage returns the stage of a world rank.
func (m Mesh) Stage(rank int) int {
	if m.Order == ReplicaMajor {
		return rank % m.Stages
	}
	return rank / m.Replicas
}

// Replica returns the replica of a world rank.
func (m Mesh) Replica(rank int) int {
	if m.Order == ReplicaMajor {
		return rank / m.Stages
	}
	return rank % m.Replicas
}

// Check returns an error unless the mesh has exactly `world` ranks.
func (m Mesh) Check(world int) error {
	if m.Size() != world {
		return fmt.Errorf("parallel.stages %d x parallel.replicas %d needs %d ranks, the world has %d: start %d (mpirun -np %d, srun -n %d), or set stages and replicas whose product is %d",
			m.Stages, m.Replicas, m.Size(), world, m.Size(), m.Size(), m.Size(), world)
	}
	return nil
}
