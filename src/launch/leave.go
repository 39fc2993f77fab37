package launch

import (
	"os"

	"dynmo/src/comm"
	"dynmo/src/comm/mpi"
	"dynmo/src/config"
	"dynmo/src/elastic"
)

// leaving returns what becomes of ranks that come to hold no layer; nil where ranks are
// goroutines, which end. Collective.
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

// await lets a process whose rank holds no layer any more, after the given number of steps, wait
// for rank 0's order. It ends the process if the order says that the rank leaves before the others.
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
