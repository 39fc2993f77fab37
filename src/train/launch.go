package train

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/comm/mpi"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/device"
	cpudevice "dynmo/src/device/cpu"
	"dynmo/src/kernel"
	"dynmo/src/kernel/cpu"
	"dynmo/src/kernel/null"
	"dynmo/src/kernel/ref"
	"dynmo/src/mesh"
	"dynmo/src/tensor"
)

// SharedError is an error that every rank has, for the same reason, so that
// one of them tells it for all.
type SharedError struct {
	error
	Input bool // settings or data are wrong, and nothing was trained
}

// Unwrap returns the error itself.
func (e SharedError) Unwrap() error { return e.error }

// input marks what the user gave as wrong.
func input(err error) error { return SharedError{err, true} }

// nullRate is what kernel/null takes a rank's arithmetic to be worth: the order
// of magnitude of one core, in floating-point operations per second.
const nullRate = 5e10

// Hooks is what a program that launches a run adds to it.
type Hooks struct {
	// Stop reports whether the process was asked to end after the step.
	Stop func() bool
	// Begin is called on rank 0, before the first step.
	Begin func(World) (Observer, error)
	// End is called on rank 0 when training is over, while MPI still runs: a
	// launcher that was told to end kills ranks that wait for it to take leave.
	End func(Outcome)
	// Fail tells people about an error and returns the exit status it stands
	// for. It is called where ranks are processes, before the world is aborted.
	Fail func(error) (status int)
}

// World is what the ranks of a run agreed on before its first step.
type World struct {
	Ranks  int
	Hosts  int
	MPI    bool
	Clock  string // wall or virtual
	Kernel string // backend
}

// Launch trains in the world this process is part of: as one rank of many
// processes if an MPI launcher started it, else with a goroutine for each
// rank. Where ranks are processes an error ends the world and does not return,
// once there is a world.
func Launch(c config.Config, h Hooks) (Outcome, error) {
	if mpi.Launched() {
		return launchMPI(c, h)
	}
	n := c.Parallel.Stages * c.Parallel.Replicas
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	if err != nil {
		return Outcome{}, input(err)
	}
	var out Outcome
	var first sync.Once
	var shared error // without the name of the rank that had it first
	err = local.Run(n, func(t comm.Transport) error {
		o, err := onRank(c, t, corpus, h)
		if t.Rank() == 0 {
			out = o
		}
		if _, ok := errors.AsType[SharedError](err); ok {
			first.Do(func() { shared = err })
		}
		return err
	})
	if shared != nil {
		err = shared
	}
	return out, err
}

const (
	// grace is how long ranks wait for each other once they have a SharedError,
	// and how long rank 0 is then left to abort the world before another does.
	grace = 2 * time.Second
	// openFor is how long ranks wait for those that read the corpus: hundreds
	// of megabytes in small files, from a file system that others use too.
	openFor = 5 * time.Minute
)

func launchMPI(c config.Config, h Hooks) (Outcome, error) {
	t, err := mpi.Start()
	if err != nil {
		return Outcome{}, input(err)
	}
	out, err := launchRank(c, t, h)
	if err == nil {
		return out, mpi.Stop()
	}
	if _, shared := errors.AsType[SharedError](err); !shared {
		who := t.Peer(t.Rank())
		err = fmt.Errorf("rank %d (host %s): %w", who.World, who.Host, err)
		t.Abort(h.Fail(err))
		return out, err
	}
	status := 1
	if t.Rank() == 0 {
		status = h.Fail(err)
	}
	// A rank that is yet to learn of the error would take one that aborts for
	// dead. Whoever does not come in time is ended all the same.
	world := comm.New(t, comm.Options{Clock: newClock(clockKind(c, t)), Deadline: grace, Patience: grace})
	_ = world.Barrier()
	if t.Rank() != 0 {
		for met := time.Now(); time.Since(met) < grace && !h.Stop(); {
			time.Sleep(grace / 100)
		}
	}
	t.Abort(status)
	return out, err
}

// launchRank trains as one process of many.
func launchRank(c config.Config, t comm.Transport, h Hooks) (Outcome, error) {
	program, err := os.Executable()
	if err != nil {
		return Outcome{}, err
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return Outcome{}, err
	}
	for _, a := range []struct {
		what  string
		value []byte
	}{
		{"binary", binary}, {"configuration", []byte(c.TOML())}, {"clock (another number of cores)", []byte(clockKind(c, t))},
	} {
		if err := mpi.Agree(a.what, sha256.Sum256(a.value)); err != nil {
			return Outcome{}, input(err)
		}
	}
	grid := mesh.Mesh{Stages: c.Parallel.Stages, Replicas: c.Parallel.Replicas, Order: mesh.Order(c.Mesh.Order)}
	if err := grid.Check(t.Size()); err != nil {
		return Outcome{}, input(err)
	}
	var corpus *data.Corpus
	if stage := grid.Stage(t.Rank()); stage == 0 || stage == grid.Stages-1 { // who feeds tokens or targets
		corpus, err = data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	}
	world := comm.New(t, comm.Options{Clock: newClock(clockKind(c, t)), Deadline: openFor, Interrupted: h.Stop})
	if err := share(world, err); err != nil {
		return Outcome{}, err
	}
	return onRank(c, t, corpus, h)
}

// share returns the same error on every rank if any rank has one: the first by
// rank. Collective.
func share(world *comm.Group, err error) error {
	text := ""
	if err != nil {
		text = err.Error()
	}
	all, err := world.Allgather([]byte(text))
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	for rank, text := range all {
		if len(text) > 0 {
			who := world.Peer(rank)
			return input(fmt.Errorf("rank %d (host %s): %s", who.World, who.Host, text))
		}
	}
	return nil
}

// onRank trains on one rank, whose goroutine is locked to its OS thread.
func onRank(c config.Config, t comm.Transport, corpus *data.Corpus, h Hooks) (Outcome, error) {
	r, err := newRank(c, t, corpus, h)
	if err != nil {
		return Outcome{}, err
	}
	defer r.Close()
	out, err := r.Loop()
	if err != nil {
		return out, err
	}
	if err := r.leave(); err != nil {
		return out, err
	}
	if t.Rank() == 0 {
		h.End(out)
	}
	return out, nil
}

// newRank makes what a rank needs: clock, kernels, groups, observer, model.
func newRank(c config.Config, t comm.Transport, corpus *data.Corpus, h Hooks) (*Rank, error) {
	clock := newClock(clockKind(c, t))
	backend, err := newBackend(c, clock)
	if err != nil {
		return nil, input(err)
	}
	world := comm.New(t, comm.Options{
		Clock:       clock,
		Network:     comm.Network{Latency: c.Comm.LatencySeconds, Bandwidth: c.Comm.BandwidthBytes},
		Deadline:    time.Duration(c.Comm.DeadlineSeconds * float64(time.Second)),
		Interrupted: h.Stop,
	})
	var observe Observer
	if t.Rank() == 0 {
		about := World{Ranks: t.Size(), Hosts: len(perHost(t)), MPI: mpi.Launched(), Clock: clock.Kind(), Kernel: backend.Name()}
		observe, err = h.Begin(about)
	}
	if err := share(world, err); err != nil {
		return nil, err
	}
	return New(Setup{
		Config: c, World: world, Device: cpudevice.New(clock), Backend: backend,
		Corpus: corpus, Stop: h.Stop, Observe: observe,
	})
}

// perHost counts the ranks on every host.
func perHost(t comm.Transport) map[string]int {
	n := make(map[string]int)
	for rank := range t.Size() {
		n[t.Peer(rank).Host]++
	}
	return n
}

// clockKind returns the clock of the settings; auto is virtual where the ranks
// of some host outnumber the cores of this one.
func clockKind(c config.Config, t comm.Transport) string {
	if c.Run.Clock != "auto" {
		return c.Run.Clock
	}
	for _, ranks := range perHost(t) {
		if ranks*c.Device.Threads > runtime.NumCPU() {
			return "virtual"
		}
	}
	return "wall"
}

func newClock(kind string) *device.Clock {
	if kind == "virtual" {
		return device.NewVirtual()
	}
	return device.NewWall()
}

// newBackend returns the kernels of the settings.
func newBackend(c config.Config, clock *device.Clock) (kernel.Backend, error) {
	switch c.Device.Kernel {
	case "ref":
		return ref.New(tensor.F32), nil
	case "null":
		return null.New(clock, null.AtRate(nullRate)), nil
	}
	backend, err := cpu.New(c.Device.Threads)
	if err != nil && c.Device.Kernel == "auto" {
		return ref.New(tensor.F32), nil
	}
	return backend, err
}
