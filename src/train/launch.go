package train

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"

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
	"dynmo/src/record"
	"dynmo/src/tensor"
)

// SharedError is an error that every rank has, for the same reason, so that
// one of them tells it for all.
type SharedError struct{ error }

// Unwrap returns the error itself.
func (e SharedError) Unwrap() error { return e.error }

// nullRate is what kernel/null takes a rank's arithmetic to be worth: the order
// of magnitude of one core, in floating-point operations per second.
const nullRate = 5e10

// Launch trains in the world this process is part of: as one rank of many
// processes if an MPI launcher started it, else with a goroutine for each
// rank. stop says whether the process was asked to end; begin is called on
// rank 0, before the first step, with what the ranks agreed on.
func Launch(c config.Config, stop func() bool, begin func(World) (Observer, error)) (Outcome, error) {
	if mpi.Launched() {
		return launchMPI(c, stop, begin)
	}
	n := c.Parallel.Stages * c.Parallel.Replicas
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	if err != nil {
		return Outcome{}, SharedError{err}
	}
	var out Outcome
	err = local.Run(n, func(t comm.Transport) error {
		o, err := onRank(c, t, corpus, stop, begin)
		if t.Rank() == 0 {
			out = o
		}
		return err
	})
	return out, err
}

// World is what the ranks of a run agreed on before its first step.
type World struct {
	Ranks  int
	Hosts  int
	MPI    bool
	Clock  string // wall or virtual
	Kernel string // backend
}

func launchMPI(c config.Config, stop func() bool, begin func(World) (Observer, error)) (Outcome, error) {
	runtime.LockOSThread()
	t, err := mpi.Start()
	if err != nil {
		return Outcome{}, SharedError{err}
	}
	who := t.Peer(t.Rank())
	out, err := launchRank(c, t, stop, begin)
	if err != nil {
		if shared := new(SharedError); errors.As(err, shared) {
			return out, err
		}
		return out, fmt.Errorf("rank %d (host %s): %w", who.World, who.Host, err)
	}
	return out, mpi.Stop()
}

func launchRank(c config.Config, t comm.Transport, stop func() bool, begin func(World) (Observer, error)) (Outcome, error) {
	if err := mpi.Agree("settings", sha256.Sum256([]byte(c.TOML()))); err != nil {
		return Outcome{}, SharedError{err}
	}
	grid := mesh.Mesh{Stages: c.Parallel.Stages, Replicas: c.Parallel.Replicas, Order: mesh.Order(c.Mesh.Order)}
	if err := grid.Check(t.Size()); err != nil {
		return Outcome{}, SharedError{err}
	}
	var corpus *data.Corpus
	if stage := grid.Stage(t.Rank()); stage == 0 || stage == grid.Stages-1 { // who feeds tokens or targets
		var err error
		if corpus, err = data.Open(c.Data, c.Model.Vocab, c.Model.Sequence); err != nil {
			return Outcome{}, SharedError{err}
		}
	}
	return onRank(c, t, corpus, stop, begin)
}

// onRank trains on one rank, whose goroutine is locked to its OS thread.
func onRank(c config.Config, t comm.Transport, corpus *data.Corpus, stop func() bool, begin func(World) (Observer, error)) (Outcome, error) {
	r, err := newRank(c, t, corpus, stop, begin)
	if err != nil {
		return Outcome{}, err
	}
	defer r.Close()
	return r.Loop()
}

// newRank makes what a rank needs: clock, kernels, groups, observer, model.
func newRank(c config.Config, t comm.Transport, corpus *data.Corpus, stop func() bool, begin func(World) (Observer, error)) (*Rank, error) {
	clock := newClock(c, t)
	backend, err := newBackend(c, clock)
	if err != nil {
		return nil, SharedError{err}
	}
	world := comm.New(t, comm.Options{
		Clock:       clock,
		Network:     comm.Network{Latency: c.Comm.LatencySeconds, Bandwidth: c.Comm.BandwidthBytes},
		Interrupted: stop,
	})
	var observe Observer
	if t.Rank() == 0 {
		about := World{Ranks: t.Size(), Hosts: len(perHost(t)), MPI: mpi.Launched(), Clock: clock.Kind(), Kernel: backend.Name()}
		if observe, err = begin(about); err != nil {
			return nil, err
		}
	}
	return New(Setup{
		Config: c, World: world, Device: cpudevice.New(clock), Backend: backend,
		Corpus: corpus, Stop: stop, Observe: observe,
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

// newClock returns the clock of the settings; auto is virtual where the ranks
// of some host outnumber the cores of this one.
func newClock(c config.Config, t comm.Transport) *device.Clock {
	kind := c.Run.Clock
	if kind == "auto" {
		kind = "wall"
		for _, ranks := range perHost(t) {
			if ranks*c.Device.Threads > runtime.NumCPU() {
				kind = "virtual"
			}
		}
	}
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

// Silent is an Observer that tells nobody.
type Silent struct{}

func (Silent) Step(record.Metrics) error { return nil }
func (Silent) Event(record.Event) error  { return nil }
