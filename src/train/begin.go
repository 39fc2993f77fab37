package train

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/dynamic"
	"dynmo/src/fault"
	"dynmo/src/input"
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/save"
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
	r.Balancer, err = policy.New(r.planner, policy.Options{Neighbours: r.neighbours, Nodes: r.World.Nodes(), Placing: dynamic.NewPlacing(r.Config)})
	return err
}

// keepers returns the parts of the run whose state a checkpoint saves, by their names there.
func (r *Rank) keepers() map[string]save.Keeper {
	return save.Keepers(map[string]any{"balancer": r.Balancer, "dynamism": r.dynamism, "profiler": &r.profiler})
}

// ranks describes the hosts, clock and kernels on which this run measures seconds.
func (r *Rank) ranks(hosts []string) save.Ranks {
	return save.Ranks{Hosts: hosts, Clock: r.Device.Clock().Kind(), Kernels: r.Backend.Name()}
}

// resume continues from the newest checkpoint, and reports whether there is one. Collective.
func (r *Rank) resume(shape model.Config) (found bool, err error) {
	reader := save.Reader{
		Config: r.Config, World: r.World, Exec: r.x, Corpus: r.Corpus, Layout: r.layout, Stage: r.world.Stages.Rank(), Shape: shape,
	}
	c, err := reader.Newest(r.Resume)
	if c == nil || err != nil {
		return false, err
	}
	r.from, r.layout, r.stage, r.skipped = *c, c.Layout, c.Stage, c.Skipped
	r.from.Anew, err = r.recall(c.Was, c.State)
	return true, err
}

// Resumed describes the checkpoint that the run resumes from.
func (r *Rank) Resumed() save.Resumed { return r.from.Resumed }

// recall restores the state in text, which a checkpoint with settings was holds. If it cannot,
// measurements and the balancer begin anew, and why says the reason. An older checkpoint has no
// state.
func (r *Rank) recall(was config.Config, text []byte) (why string, err error) {
	if len(text) == 0 {
		return "", nil
	}
	here := save.Here{Ranks: r.ranks(r.World.Hosts()), Now: r.Config, Was: was}
	s, failed := save.ReadState(text)
	if failed == nil {
		failed = s.Restore(here, r.keepers(), r.layout)
	}
	if failed == nil {
		r.spent = s.Spent
		return "", nil
	}
	why = brief(failed)
	if err := r.begin(); err != nil {
		return why, err
	}
	dense, failed := s.Reference(here)
	if failed == nil && dense != nil {
		failed = r.Balancer.SetReference(*dense)
	}
	if failed != nil {
		why += "; " + brief(failed)
	}
	return why, nil
}

// brief shortens an error about a file to at most 400 characters for a line of the log.
func brief(err error) string { return fmt.Sprintf("%.400s", input.Visible(err.Error())) }

// Tuned counts the kinds of dense products whose algorithms rank 0 measured. Time is the wall time
// of these measurements.
type Tuned struct {
	Products int
	Time     time.Duration
}

// Tuned returns the algorithms' measurements before the first step. The result is zero on ranks
// other than 0, and if nothing was measured.
func (r *Rank) Tuned() Tuned { return r.tuned }

// tune makes all ranks use the same algorithms for dense products, if the kernels have several. A
// resumed run takes the choice of its checkpoint, even if that is no choice, so that the bits stay
// the same. Another run takes the algorithms that rank 0 measures to be the fastest, if the
// settings ask for it. Collective.
func (r *Rank) tune(shape model.Config) error {
	k, ok := r.Backend.(kernel.Tuner)
	if !ok {
		return nil
	}
	if was, err := save.ReadState(r.from.State); err == nil && was.Kernels == k.Name() {
		if was.Products == nil {
			return nil
		}
		err := comm.Agree(r.World, k.Choose(was.Products), false)
		if err == nil {
			r.products = was.Products
			return nil
		}
		r.from.Otherwise = brief(err)
	}
	if !r.Config.Device.Tune {
		return nil
	}
	var text []byte
	var err error
	if r.World.Rank() == 0 {
		began, products := time.Now(), model.Products(shape, r.x)
		text, err = k.Tune(r.Device, r.Stream, products)
		r.tuned = Tuned{len(products), time.Since(began)}
		r.Device.Trim()
	}
	if err := comm.Agree(r.World, err, false); err != nil {
		return err
	}
	if text, err = r.World.Bcast(0, text); err != nil {
		return fmt.Errorf("algorithms of products: %w", err)
	}
	r.products = text
	return comm.Agree(r.World, k.Choose(text), false)
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
