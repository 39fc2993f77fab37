package train

import (
	"errors"
	"strconv"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/dynamic"
	"dynmo/src/fault"
	"dynmo/src/kernel"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/tensor"
)

// draw makes the readers of training and validation microbatches. Each microbatch that they read
// joins `joined` microbatches of the settings.
func (r *Rank) draw(joined int) {
	if r.Corpus == nil {
		return
	}
	size := r.Config.Parallel.MicrobatchSize
	r.batches = r.Corpus.Joined(joined, size, r.x.T)
	if held := r.Corpus.Held(); held != nil {
		r.held = held.Batches(joined*size, r.x.T)
	}
}

// begin sets dynamism, profiler, balancer and the seconds spent to those of a new run.
func (r *Rank) begin() (err error) {
	if r.dynamism, err = dynamic.Open(r.Config); err != nil {
		return err
	}
	r.profiler, r.spent, r.neighbours = profile.Profiler{Counts: dynamic.AllCounts(r.Config)}, 0, new(policy.Neighbours)
	r.Balancer, err = policy.New(r.problem, policy.Options{Neighbours: r.neighbours, Nodes: r.World.Nodes(), Placing: dynamic.NewPlacing(r.Config)})
	return err
}

// slowDown prepares the slowdown of this rank's kernels, if a fault asks for it.
func (r *Rank) slowDown() error {
	if r.Fault == nil || r.Fault.Kind != fault.Slow || r.Fault.Rank != r.World.Rank() {
		return nil
	}
	if r.Device.Space() == tensor.Host {
		r.slowdown = kernel.NewSlowdown(r.Backend, r.Device.Clock())
	}
	if r.slowdown == nil {
		return comm.Input(errors.New(fault.Variable + ": only a rank that computes on a CPU can be slowed down"))
	}
	return nil
}

// startClock sets the zero of all ranks' clocks. Ranks of one host take the zero of the host's
// first rank. Zeros of different hosts differ by the time in which ranks leave a barrier.
// Collective.
func (r *Rank) startClock() error {
	if err := r.World.Barrier(); err != nil {
		return err
	}
	all, err := r.World.Allgather(strconv.AppendInt(nil, device.Monotonic(), 10))
	if err != nil {
		return err
	}
	for rank, b := range all {
		if r.World.Peer(rank).Host != r.World.Peer(r.World.Rank()).Host {
			continue
		}
		zero, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			return err
		}
		r.Device.Clock().Zero(zero)
		break
	}
	return r.x.Stream.Sync() // later events are read with the clock's new zero
}
