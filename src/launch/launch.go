// Package launch starts a run. Settings and the hooks of a program come in. A rank in every
// process, or in every goroutine, goes out: it knows its device, agrees with the other ranks, and
// trains.
package launch

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/comm/mpi"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/fault"
	"dynmo/src/kernel"
	"dynmo/src/mesh"
	"dynmo/src/model"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/save"
	"dynmo/src/train"
)

// Hooks is what a program that launches a run adds to it.
type Hooks struct {
	// Stop reports whether the process was asked to end after the step.
	Stop func() bool
	// Save reports whether the process was asked for a checkpoint since the last call; nil: never.
	Save func() bool
	// Resume is the run directory whose newest checkpoint the run resumes from, the same
	// in all processes; "" begins anew. So does a directory that has none.
	Resume string
	// RunDir is called on rank 0 after Begin: where checkpoints are kept; "" or nil: nowhere.
	RunDir func() string
	// Begin is called on rank 0, before the first step.
	Begin func(World) (record.Observer, error)
	// End is called on rank 0 when training is over, while MPI still runs: a
	// launcher that was told to end kills ranks that are still waiting for each other to end.
	End func(train.Outcome)
	// Fail tells people about an error and returns the exit status it stands
	// for. It is called where ranks are processes, before the world is aborted, and
	// before Exit.
	Fail func(error) (status int)
	// Phase is called by every rank, on its thread, at the start of every phase of a step; nil: never.
	Phase func(world *comm.Group, step int, room comm.Room)
	// Fault is the failure that is wanted of some rank, nil if none.
	Fault *fault.Fault
	// Exit ends this process, where a rank may never return: it is stuck. nil: ranks
	// that are goroutines are not watched.
	Exit func(status int)
}

// World is what the ranks of a run agreed on before its first step.
type World struct {
	Ranks     int
	Hosts     int
	HostOf    []string // by rank
	Placement []string // lines: which ranks are on which host, and on which cores
	Notes     []string // what makes ranks slow, and what mends that
	MPI       bool
	Clock     string // wall or virtual
	Crowded   string // a host whose cores the ranks' threads outnumber; "" if there is none
	Kernels   string // backend, instruction-set path, BLAS
	Corpus    string // SHA-256 of the text
	GPU       string // of rank 0; "" on a CPU
	Transport string // of the memory of GPUs between ranks; "" on a CPU

	Resumed save.Resumed // what the run resumes from
	Tuned   train.Tuned  // dense products that were measured; zero if none were

	Unmetered error // why the energy of rank 0's GPU is not metered; nil if it is, or on a CPU
}

// Launch trains in the world this process is part of: as one rank of many
// processes if an MPI launcher started it, else with a goroutine for each
// rank. Where ranks are processes an error ends the world and does not return,
// once there is a world.
func Launch(c config.Config, h Hooks) (train.Outcome, error) {
	if mpi.Launched() {
		return launchMPI(c, h)
	}
	n := c.Parallel.Stages * c.Parallel.Replicas
	if n > mostGoroutines {
		return train.Outcome{}, comm.Input(fmt.Errorf("parallel.stages %d x parallel.replicas %d: wanted at most %d ranks in one process; mpirun and srun start more",
			c.Parallel.Stages, c.Parallel.Replicas, mostGoroutines))
	}
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	if err != nil {
		return train.Outcome{}, comm.Input(err)
	}
	var out train.Outcome
	var first sync.Once
	var shared error // without the name of the rank that had it first
	board := comm.NewBoard(n)
	err = local.Run(n, func(t comm.Transport) error {
		if t.Rank() == 0 && h.Exit != nil {
			w := newWatch(c, t, board, h)
			defer close(w.stop)
			go w.run()
		}
		o, _, err := onRank(c, t, h, board.Post(t.Rank()), func() (*data.Corpus, error) { return corpus, nil })
		if t.Rank() == 0 {
			out = o
		}
		if _, ok := errors.AsType[comm.SharedError](err); ok {
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
	// mostGoroutines is below the 10,000 threads at which Go ends a program: every
	// rank has one, and some have more.
	mostGoroutines = 4096
	// grace is how long ranks wait for each other once they have a comm.SharedError. After it, rank
	// 0 has the same time again to abort the world before another rank does.
	grace = 2 * time.Second
	// startFor is how long ranks wait for each other where nothing is known yet of how long
	// things take: reading the corpus from a file system that others use too, the first steps.
	startFor = 5 * time.Minute
)

func launchMPI(c config.Config, h Hooks) (train.Outcome, error) {
	var out train.Outcome
	started := mpi.Within(time.Duration(c.Comm.StartSeconds*float64(time.Second)), func(err error) {
		if h.Stop() { // another rank has told why: the launcher asks this one to end
			h.Exit(1)
		}
		h.Exit(h.Fail(err))
	})
	t, err := mpi.Start()
	if err != nil {
		started()
		return out, comm.Input(byFirst(err))
	}
	refusing, err := mpi.FirstRefusing(false)
	if err == nil && refusing >= 0 {
		started()
		stopped := mpi.Stop() // the ranks leave MPI together
		return out, errors.Join(toldBy(refusing), stopped)
	}
	if err == nil {
		err = agree(c, t)
	}
	started()
	w := newWatch(c, t, comm.NewBoard(t.Size()), h)
	var apart bool
	if err == nil {
		out, apart, err = launchRank(c, t, h, w)
	}
	if err == nil {
		// A rank that does not end, as one that is stopped, has the others wait.
		late := time.AfterFunc(startFor, func() { h.Exit(1) })
		defer late.Stop()
		if apart { // MPI_Finalize would wait for the ranks that have ended
			return out, mpi.Leave()
		}
		return out, mpi.Stop()
	}
	if _, shared := errors.AsType[comm.SharedError](err); !shared {
		w.end(err, t.Abort)
	}
	status := 1
	if t.Rank() == 0 {
		status = h.Fail(err)
	}
	// A rank that is yet to learn of the error would take one that aborts for
	// dead. A rank that does not learn of it in time is ended all the same.
	world := comm.New(t, comm.Options{Deadline: grace, Patience: grace})
	_ = world.Barrier()
	if t.Rank() != 0 {
		for met := time.Now(); time.Since(met) < grace && !h.Stop(); {
			time.Sleep(grace / 100)
		}
	}
	t.Abort(status)
	return out, err
}

// agree returns an error unless all processes run one binary with one configuration,
// and are as many as that has ranks. Collective.
func agree(c config.Config, t comm.Transport) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	binary, err := contentHash(path)
	if err != nil {
		return err
	}
	for _, a := range []struct {
		what string
		hash [sha256.Size]byte
	}{{"binary", binary}, {"configuration", sha256.Sum256([]byte(c.TOML()))}} {
		if err := mpi.Agree(a.what, a.hash); err != nil {
			return comm.Input(err)
		}
	}
	if err := grid(c).Check(t.Size()); err != nil {
		return comm.Input(err)
	}
	return nil
}

// launchRank trains as one process of many, watched. apart is that of onRank.
func launchRank(c config.Config, t comm.Transport, h Hooks, w *watch) (out train.Outcome, apart bool, err error) {
	if w.board, err = share(comm.New(t, comm.Options{Deadline: startFor, Interrupted: h.Stop})); err != nil {
		return out, false, fmt.Errorf("start: %w", err)
	}
	go w.run()
	defer close(w.stop)
	grid := grid(c)
	return onRank(c, t, h, w.board.Post(t.Rank()), func() (*data.Corpus, error) {
		if stage := grid.Stage(t.Rank()); stage > 0 && stage < grid.Stages-1 && !readInside(c) {
			return nil, nil
		}
		return data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	})
}

// readInside reports whether stages between the first and the last may come to hold a layer
// that reads tokens or targets: slices of the head do, and exits. The chain begins on
// the first stage and ends there or on the last, however many chunks of it stages hold;
// where ranks leave, any that stays may become one of those.
func readInside(c config.Config) bool {
	chain := model.FromConfig(c).Chain()
	return c.Packs() || slices.ContainsFunc(chain[1:len(chain)-1], func(d model.Description) bool { return d.Traits().Feeds })
}

// grid returns how ranks are laid over stages and replicas.
func grid(c config.Config) mesh.Mesh {
	return mesh.Mesh{Stages: c.Parallel.Stages, Replicas: c.Parallel.Replicas, Order: mesh.Order(c.Mesh.Order)}
}

// onRank trains on one rank, whose goroutine is locked to its OS thread, and shows its activity on
// a post. A panic becomes an error that says where it happened. apart says that ranks may end
// before the run does.
func onRank(c config.Config, t comm.Transport, h Hooks, post *comm.Post, open func() (*data.Corpus, error)) (out train.Outcome, apart bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v: panic: %v\n%s", post, p, debug.Stack())
		}
	}()
	r, err := newRank(c, t, h, open)
	if err != nil {
		return train.Outcome{}, false, err
	}
	r.World.Show(post)
	apart = r.Terms != nil && r.Terms.Ends() // goroutines have no terms
	out, err = r.Loop()
	post.Leave()
	if err == nil && r.gpu != nil && r.Observe != nil {
		err = r.gpu.tell(r.Observe, r.Device.Clock().Kind(), out.Steps)
	}
	if err != nil {
		return out, apart, err // others may still be at this rank's memory: it is freed by the end of the process
	}
	r.Close()
	if err := r.Leave(); err != nil {
		return out, apart, err
	}
	if out.Left {
		return out, apart, await(r, out.Steps, h)
	}
	if t.Rank() == 0 {
		h.End(out)
	}
	return out, apart, nil
}

// rank is a rank that is ready to train.
type rank struct {
	*train.Rank
	gpu *energy // nil on a CPU
}

// newRank makes what a rank needs: corpus, kernels, clock, groups, observer,
// model. Collective.
func newRank(c config.Config, t comm.Transport, h Hooks, open func() (*data.Corpus, error)) (*rank, error) {
	var before int64
	if alone(t) {
		before = profile.Anonymous()
	}
	early := comm.New(t, comm.Options{Deadline: startFor, Patience: startFor, Interrupted: h.Stop})
	mine := arrival{Cores: cores()}
	stages, unplanned := train.Bytes(c)
	corpus, err := open()
	if err == nil && corpus != nil {
		mine.Corpus = corpus.Hash()
		if held := corpus.Held(); held != nil {
			mine.Held = held.Hash()
		}
	}
	have, failed := newMachine(c)
	mine.Kernels, mine.GPU = have.kernels, have.gpu
	if err = errors.Join(unplanned, err, failed); err != nil {
		mine.Error = err.Error()
	}
	if mine.Bounds = have.bounds; have.gpu == "" {
		mine.Bounds = bounds(os.DirFS("/"), os.Getpid())
	} else if alone(t) {
		l := localityOf(os.DirFS("/"), have.bus, mine.Cores)
		mine.Locality = &l
	}
	all, err := meet(early, mine)
	if err != nil {
		return nil, err
	}
	byGPU, shared, err := gpuRanks(c, early, all)
	if err != nil {
		return nil, err
	}
	kind, onHost := transportOf(c, t.Size(), shared || !alone(t)), slices.Max(slices.Collect(maps.Values(perHost(early))))
	carried := transportBytes(c, kind, onHost)
	if err := fit(early, all, optional(c), byRank(grid(c), stages, carried(c.Parallel.Stages, c.Parallel.Replicas))); err != nil {
		return nil, err
	}
	placed := bindings(early.Peer, all)
	if mine.Locality != nil {
		if err := comm.Agree(early, bind(placed[t.Rank()].processors()), false); err != nil {
			return nil, err
		}
	}
	clock := have.clock
	if clock == nil {
		clock = newClock(clockKind(c, early, all))
	}
	dev, backend := have.open(clock)
	stream := dev.NewStream()
	transport, makeTransport, err := deviceTransport(c, kind, dev, stream, onHost)
	if err := comm.Agree(early, err, true); err != nil {
		return nil, err
	}
	world := comm.New(t, comm.Options{
		Clock:           clock,
		DeviceTransport: makeTransport,
		Network: comm.Network{
			Latency: c.Comm.LatencySeconds, Bandwidth: c.Comm.BandwidthBytes,
			Delay: comm.Delay{Most: c.Comm.DelayMost, Seed: c.Run.Seed},
		},
		Deadline:    startFor,
		Interrupted: h.Stop,
	})
	var gpu *energy
	var joules func() float64
	var unmetered error
	if have.gpu != "" {
		gpu, unmetered = newEnergy(have.gpu, len(byGPU[have.gpu]))
		joules = gpu.joules
	}
	terms, err := leaving(c, early)
	if err != nil {
		return nil, err
	}
	r, err := train.New(train.Setup{
		Config: c, Terms: terms, Joules: joules, World: world, Device: dev, Stream: stream, Backend: backend,
		Corpus: corpus, Stop: h.Stop, Save: h.Save, Resume: h.Resume, Fault: h.Fault, Exit: h.Exit, TransportBytes: carried, Before: before, Phase: h.Phase,
	})
	if err != nil {
		return nil, err
	}
	// Rank 0 writes nothing before all ranks are ready.
	if t.Rank() == 0 {
		notes := bindingNotes(placed)
		if advice := kernel.Advice(have.kernels); advice != "" {
			notes = append(notes, advice)
		}
		r.Observe, err = h.Begin(World{
			Ranks: t.Size(), Hosts: len(perHost(early)), HostOf: early.Hosts(), Placement: placement(early.Peer, all, placed), Notes: notes, MPI: mpi.Launched(), Clock: clock.Kind(), Crowded: crowded(c, early, all), Kernels: have.kernels,
			Corpus: corpus.Hash(), GPU: have.gpu, Transport: transport, Unmetered: unmetered, Resumed: r.Resumed(), Tuned: r.Tuned(),
		})
	}
	if err := comm.Agree(world, err, true); err != nil {
		return nil, err
	}
	var dir []byte
	if t.Rank() == 0 && h.RunDir != nil {
		dir = []byte(h.RunDir())
	}
	dir, err = world.Bcast(0, dir)
	r.RunDir = string(dir)
	return &rank{r, gpu}, err
}
