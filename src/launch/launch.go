// Package launch starts a run. In come settings, and the hooks of a program. Out come ranks that
// train: one in every process, or one in every goroutine. Each rank knows its device, and agrees
// with the other ranks on the run.
package launch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"dynmo/src/checkpoint"
	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/comm/mpi"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/fault"
	"dynmo/src/kernel"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/train"
)

// Hooks are the functions that a program adds to the run that it launches.
type Hooks struct {
	// Stop reports whether the process was asked to end after the step.
	Stop func() bool
	// Save reports whether the process was asked for a checkpoint since the last call; nil: never.
	Save func() bool
	// Resume is the run directory whose newest checkpoint the run resumes from, the same in all
	// processes. A new run starts if Resume is "", or if the directory has no checkpoint.
	Resume string
	// RunDir is called on rank 0 after Begin. It returns the directory for checkpoints; "" or nil:
	// no checkpoints.
	RunDir func() string
	// Records is called by every rank once the run directory is known, "" for none; nil: never.
	Records func(runDir string)
	// Begin is called on rank 0, before the first step.
	Begin func(World) (record.Observer, error)
	// End is called on rank 0 after training, while MPI still runs. Later the launcher may kill
	// ranks that still wait for each other.
	End func(train.Outcome)
	// Fail reports an error to people and returns its exit status. It is called where ranks are
	// processes, before the world is aborted and before Exit.
	Fail func(error) (status int)
	// Phase is called by every rank, on its thread, at the start of every phase of a step; nil: never.
	Phase func(world *comm.Group, step int, room comm.Room)
	// Fault is the failure to inject in some rank; nil: none.
	Fault *fault.Fault
	// Exit ends this process, because a stuck rank may never return. nil: ranks are goroutines, and
	// are not watched.
	Exit func(status int)
}

// World describes the ranks, hosts and devices that a run agreed on before its first step.
type World struct {
	Ranks         int
	Hosts         int
	HostOf        []string // by rank
	Placement     []string // lines: the host and the cores of each rank
	Notes         []string // reasons for slow ranks, and remedies
	MPI           bool
	Clock         string // wall or virtual
	Crowded       string // host with more threads of ranks than cores; "": none
	Kernels       string // backend, instruction-set path, BLAS
	Corpus        data.Summary
	GPU, GPUModel string             // of rank 0, its UUID and its name; "" on a CPU
	Transport     string             // between ranks, of the memory of GPUs; "" on a CPU
	Resumed       checkpoint.Resumed // the checkpoint that the run resumes from
	Tuned         train.Tuned        // measurements of dense products; zero if none
	Sgemm         float64            // floating-point operations per second of a float32 product on rank 0; 0 unless products are C's in float32

	Unmetered error // reason why the energy of rank 0's GPU is unknown; nil if it is metered, or on a CPU
}

// Launch trains in the world of this process. An MPI launcher started the process as one of many
// ranks; without a launcher each rank is a goroutine. Where ranks are processes, an error after the
// start of MPI ends the world, and Launch does not return.
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
	var shared error // without the name of the first rank that had the error
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
	// mostGoroutines bounds ranks that are goroutines. Each rank has a thread, and some have more;
	// Go ends a program with 10,000 threads.
	mostGoroutines = 4096
	// grace is how long ranks wait for each other once they have a comm.SharedError. After it, rank
	// 0 has the same time again to abort the world before another rank does.
	grace = 2 * time.Second
	// startFor is how long ranks wait for each other while durations are unknown. It covers the
	// first steps, and reading the corpus from a busy file system.
	startFor = 5 * time.Minute
)

func launchMPI(c config.Config, h Hooks) (train.Outcome, error) {
	var out train.Outcome
	started := mpi.Within(time.Duration(c.Comm.StartSeconds*float64(time.Second)), func(err error) {
		if h.Stop() { // another rank has reported the error, and the launcher asks this rank to end
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
		// A rank that does not end, such as a stopped process, would keep the others waiting.
		stop := comm.AfterFunc(startFor, func() { h.Exit(1) })
		defer stop()
		if apart { // Stop would wait for the ranks that have ended
			return out, mpi.Leave()
		}
		return out, mpi.Stop()
	}
	if _, shared := errors.AsType[comm.SharedError](err); !shared {
		w.end(err, t.Abort)
	}
	w.board.Claim(t.Rank()) // a rank of this host that has no layers sees the others end, and does not report that
	status := 1
	if t.Rank() == 0 {
		status = h.Fail(err)
	}
	// Ranks that have not learned of the error would report the aborting rank as dead. After grace
	// they are ended anyway.
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

// launchRank trains as one process of many, watched by w. apart is the result of onRank.
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

// readInside reports whether stages between the first and the last may need tokens or targets.
// Slices of the head and exits need them. Without these only the first and the last layer do, which
// lie on the first or the last stage. If ranks can leave, any remaining stage may become the first
// or the last.
func readInside(c config.Config) bool {
	chain := model.FromConfig(c).Chain()
	return c.Packs() || slices.ContainsFunc(chain[1:len(chain)-1], func(d model.Description) bool { return d.Traits().Feeds })
}

// grid returns the mesh of stages and replicas that the settings ask for.
func grid(c config.Config) layout.Mesh {
	return layout.Mesh{Stages: c.Parallel.Stages, Replicas: c.Parallel.Replicas, Order: layout.RankOrder(c.Mesh.Order)}
}

// onRank trains on one rank, whose goroutine is locked to its OS thread. It posts the rank's
// activity. A panic becomes an error with the place of the panic. apart reports that ranks may end
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
	apart = r.Terms != nil && r.Terms.Ends() // goroutines have no Terms
	out, err = r.Loop()
	post.Leave()
	if err == nil && r.gpu != nil && r.Observe != nil {
		err = r.gpu.tell(r.Observe, r.Device.Clock().Kind(), out.Steps)
	}
	if err != nil {
		return out, apart, err // others may still read this rank's memory, which the end of the process frees
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

// rank is a rank that is ready to train, with the meter of its GPU.
type rank struct {
	*train.Rank
	gpu *energy // nil on a CPU
}

// newRank makes the parts of a rank: corpus, kernels, clock, groups, observer and model.
// Collective.
func newRank(c config.Config, t comm.Transport, h Hooks, open func() (*data.Corpus, error)) (*rank, error) {
	var before int64
	if alone(t) {
		before = profile.Anonymous()
	}
	early := comm.New(t, comm.Options{Deadline: startFor, Patience: startFor, Interrupted: h.Stop})
	mine := arrival{Cores: cores()}
	first, unplanned := train.PlanFirst(c)
	var err error
	if mine.Files, err = fileHashes(c, early, h.Resume); err != nil {
		return nil, err
	}
	corpus, err := open()
	if err == nil && corpus != nil {
		mine.Files["data.path"] = corpus.Hash()
		if held := corpus.Held(); held != nil {
			mine.Files["data.validation"] = held.Hash()
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
	if err := checkFit(early, all, optionalSetting(c), bytesByRank(grid(c), first.Bytes(), carried(c.Parallel.Stages, c.Parallel.Replicas))); err != nil {
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
		Config: c, First: first, Terms: terms, Joules: joules, World: world, Device: dev, Stream: stream, Backend: backend,
		Corpus: corpus, Stop: h.Stop, Save: h.Save, Resume: h.Resume, Fault: h.Fault, Exit: h.Exit, TransportBytes: carried, Before: before, Phase: h.Phase,
	})
	if err != nil {
		return nil, err
	}
	// Rank 0 writes to the run directory only when all ranks are ready.
	if t.Rank() == 0 {
		notes := bindingNotes(placed)
		if advice := kernel.Advice(have.kernels); advice != "" {
			notes = append(notes, advice)
		}
		r.Observe, err = h.Begin(World{
			Ranks: t.Size(), Hosts: len(perHost(early)), HostOf: early.Hosts(), Placement: placement(early.Peer, all, placed), Notes: notes, MPI: mpi.Launched(), Clock: clock.Kind(), Crowded: crowded(c, early, all), Kernels: have.kernels,
			Corpus: corpus.Summary(), GPU: have.gpu, GPUModel: have.model, Transport: transport, Unmetered: unmetered, Resumed: r.Resumed(), Tuned: r.Tuned(), Sgemm: sgemmRate(backend, clock, c.Device),
		})
	}
	if err := comm.Agree(world, err, !diskFailed(err)); err != nil {
		return nil, err
	}
	var dir []byte
	if t.Rank() == 0 && h.RunDir != nil {
		dir = []byte(h.RunDir())
	}
	dir, err = world.Bcast(0, dir)
	r.RunDir = string(dir)
	if h.Records != nil {
		h.Records(r.RunDir)
	}
	return &rank{r, gpu}, err
}
