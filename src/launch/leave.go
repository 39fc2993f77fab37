package launch

import (
	"os"

	"dynmo/src/comm"
	"dynmo/src/comm/mpi"
	"dynmo/src/config"
	"dynmo/src/elastic"
)

// leaving returns the terms on which ranks without layers leave; nil where ranks are goroutines.
// Collective.
func leaving(c config.Config, world *comm.Group) (*elastic.Terms, error) {
	if !mpi.Launched() {
		return nil, nil
	}
	if !c.Packs() {
		t := elastic.Parking(world)
		return &t, nil
	}
	t, err := elastic.Agree(world, c.Elastic, elastic.Here{Getenv: os.Getenv, CannotLeave: mpi.CanLeave()})
	return &t, err
}

// await waits for rank 0's order, in a process whose rank has no layers after `steps` steps. It
// ends the process if the order is to leave before the others.
func await(r *rank, steps int, h Hooks) error {
	if !mpi.Launched() {
		return nil
	}
	order, err := r.Await(steps)
	if err != nil || order == elastic.OrderEnd {
		return err
	}
	if err := mpi.Leave(); err != nil {
		return err
	}
	h.Exit(0)
	return nil
}
