package launch

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"dynmo/src/checkpoint"
	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/partition/partitiontest"
	"dynmo/src/plan"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/random"
	"dynmo/src/record"
	"dynmo/src/trace"
	"dynmo/src/train"
)

// long is set if all cases are to run. Cases left out under -short run in build.sh test's pass with
// kernels in C.
var long = os.Getenv("DYNMO_LONG") == "1"

// skipUnlessC skips a test under -short, where only kernels in Go are built. Its result does not
// depend on kernels, and those in Go take ten times as long.
func skipUnlessC(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs in the pass with kernels in C")
	}
}

// tiny are the settings of a model that trains in milliseconds: a chain of 10 layers, pruned every
// 2 steps from dense over masked to CSR. device.tune is off: with it, two runs that are compared
// could choose different kernels.
const tiny = `model.blocks=8 model.hidden=16 model.heads=2 model.sequence=12 model.init=depth-scaled
	parallel.microbatches=4 parallel.microbatch_size=2 train.steps=12 train.hash=true optimizer.lr=3e-3 optimizer.warmup=3
	dynamic.kind=prune prune.start=2 prune.every=2 prune.times=4 prune.csr_from=0.7 run.clock=wall device.tune=false `

// small returns tiny settings with changes: table.key=value, separated by spaces.
func small(t *testing.T, more ...string) config.Config {
	t.Helper()
	c, err := load(corpus(t), more...)
	if err != nil {
		t.Fatalf("%q: %v", more, err)
	}
	return c
}

// load returns tiny settings for a corpus, with changes.
func load(corpus string, more ...string) (config.Config, error) {
	return config.Load("", strings.Fields(tiny+"data.path="+corpus+" "+strings.Join(more, " ")))
}

// corpus writes a text file and returns its path.
func corpus(t *testing.T) string {
	t.Helper()
	text := filepath.Join(t.TempDir(), "corpus.txt")
	expect.OK(t, os.WriteFile(text, []byte(strings.Repeat("the quick brown fox jumps over the lazy dog; ", 200)), 0o600))
	return text
}

// run has a run's losses, gradient norms, validation losses and final hash. Every bit of them must
// be independent of placement.
type run struct {
	losses, norms, validation []record.Float
	hash                      string
	moves                     int
	behind                    int       // moves that were completed during the next step
	schedules                 int       // decisions for schedules other than 1F1B
	sparsity                  []float64 // after every pruning
	metrics                   []record.Metrics
	frozen                    []string // each freezing and unfreezing: step, kind, and number of layers
	series                    record.Series
}

func (r *run) base() *run           { return r }
func (*run) Trace(trace.Step) error { return nil }
func (*run) Say(string)             {}
func (r *run) Costs(p record.Phase) error {
	r.series = append(r.series, p)
	return nil
}

// Step records the numbers of a step, which must be finite.
func (r *run) Step(m record.Metrics) error {
	r.losses, r.norms, r.metrics = append(r.losses, m.Loss), append(r.norms, m.GradNorm), append(r.metrics, m)
	if m.Validated() {
		r.validation = append(r.validation, m.ValidationLoss)
		if want := math.Exp(float64(m.ValidationLoss)); float64(m.ValidationPerplexity) != want && !math.IsNaN(want) || !(m.ValidationSeconds > 0) {
			return fmt.Errorf("step %d: perplexity %v, want %v; %v s", m.Step, m.ValidationPerplexity, want, m.ValidationSeconds)
		}
	}
	for i, x := range []record.Float{m.StepSeconds, m.BubbleRatio, m.Imbalance, m.Bottleneck, m.Headroom, m.Predicted} {
		if !(x >= 0) || math.IsInf(float64(x), 1) {
			return fmt.Errorf("step %d: number %d of step, bubbles, imbalance, bottleneck, headroom, predicted is %v", m.Step, i, x)
		}
	}
	return nil
}

func (r *run) Event(e record.Event) error {
	switch e.Kind {
	case record.Migrate:
		r.moves++
		if e.Detail["bytes_behind"] != nil {
			r.behind++
		}
	case record.Balance:
		if e.Detail["schedule"] != "1f1b" {
			r.schedules++
		}
	case record.Dynamic:
		if s, ok := e.Detail["sparsity"].(float64); ok {
			r.sparsity = append(r.sparsity, s)
		}
		if layers, ok := e.Detail["layers"]; ok {
			r.frozen = append(r.frozen, fmt.Sprintf("%d %v %v", e.Step, e.Detail["what"], layers))
		}
	}
	return nil
}

// difference describes the first difference between two runs; "" if they are equal.
func (r *run) difference(other *run) string {
	for i := range r.losses {
		if i >= len(other.losses) || r.losses[i] != other.losses[i] || r.norms[i] != other.norms[i] {
			return fmt.Sprintf("step %d", i)
		}
	}
	switch {
	case !slices.Equal(r.validation, other.validation):
		return fmt.Sprintf("validation losses %v, want %v", r.validation, other.validation)
	case r.hash != other.hash:
		return "final weights"
	}
	return ""
}

// same fails the test if a run differs from one stage that never moved a layer, in its numbers or
// in the steps of freezing.
func same(t *testing.T, got, want *run) {
	t.Helper()
	if at := got.difference(want); at != "" {
		t.Errorf("differs from one stage at %s", at)
	}
	if !slices.Equal(got.frozen, want.frozen) {
		t.Errorf("changes %q, of one stage %q", got.frozen, want.frozen)
	}
}

// joined appends the second part of a run to the first.
func joined(first, then *run) *run {
	return &run{
		losses: slices.Concat(first.losses, then.losses), norms: slices.Concat(first.norms, then.norms), hash: then.hash,
		validation: slices.Concat(first.validation, then.validation), frozen: slices.Concat(first.frozen, then.frozen),
	}
}

// scripted returns the cuts of the next step.
type scripted func(step int, now partition.Partition) partition.Partition

// script is a balancer with given answers.
type script struct {
	next scripted
	step int
}

func (s *script) Decide(_ profile.Measurement, now layout.Layout) (layout.Layout, plan.Reason, error) {
	next := now.With(s.next(s.step, now.Cuts), now.Schedule)
	s.step++
	return next, plan.Reason{}, nil
}

func (*script) NoteRefusal()                      {}
func (*script) KnownReference() *plan.Reference   { return nil }
func (*script) SetReference(plan.Reference) error { return nil }

// scatter returns a random legal partition for every step, the same on all ranks.
func scatter(seed uint64) scripted {
	return func(step int, now partition.Partition) partition.Partition {
		return partitiontest.Random(random.Keyed(seed, uint64(step)), now.Layers(), now.Stages())
	}
}

// watcher is an observer that keeps a run.
type watcher interface {
	record.Observer
	base() *run
}

// session trains with a goroutine for each rank.
type session struct {
	watch     watcher                          // nil: a run
	balancer  func() policy.Balancer           // made for each rank; nil: the settings' balancer
	dir, from string                           // run directory, and the run directory to resume from
	pieces    uint64                           // seed of the places of pieces of layers, if a balancer is given
	stop      int                              // number of steps after which the run is asked to stop; 0: never
	begin     func(*rank)                      // called on each rank before its first step; nil: nothing
	end       func(*rank, train.Outcome) error // called on each rank after its last step; nil: nothing

	resumed checkpoint.Resumed // the checkpoint on which it resumed
	outcome train.Outcome
}

// scattered returns a balancer that moves layers at random after every step.
func scattered(seed uint64) func() policy.Balancer {
	return func() policy.Balancer { return &script{next: scatter(seed)} }
}

// try trains and returns the error. A panic of a rank is an error, so that a test of many settings
// goes on.
func (s *session) try(t *testing.T, c config.Config) error {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	if s.watch == nil {
		s.watch = &run{}
	}
	out := s.watch.base()
	return local.Run(c.Parallel.Stages*c.Parallel.Replicas, func(tr comm.Transport) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			}
		}()
		var r *rank
		r, err = newRank(c, tr, Hooks{
			Stop:   func() bool { return s.stop > 0 && tr.Rank() == 0 && r != nil && len(out.losses) >= s.stop-1 },
			Begin:  func(World) (record.Observer, error) { return s.watch, nil },
			Resume: s.from, RunDir: func() string { return s.dir },
		}, func() (*data.Corpus, error) { return corpus, nil })
		if err != nil {
			return err
		}
		if s.balancer != nil {
			r.Balancer = &placing{Balancer: s.balancer(), shape: model.FromConfig(c), seed: s.pieces}
		}
		if s.begin != nil {
			s.begin(r)
		}
		if tr.Rank() == 0 {
			s.resumed = r.Resumed()
		}
		o, err := r.Loop()
		if err != nil {
			return err
		}
		if tr.Rank() == 0 {
			s.outcome, out.hash = o, o.Hash
		}
		if s.end != nil {
			if err := s.end(r, o); err != nil {
				return err
			}
		}
		r.Close()
		return r.Leave()
	})
}

// train trains, and fails the test on an error.
func (s *session) train(t *testing.T, c config.Config) *run {
	t.Helper()
	expect.OK(t, s.try(t, c))
	return s.watch.base()
}

// goRun trains to the end with scripted cuts.
func goRun(t *testing.T, c config.Config, repartition scripted) *run {
	t.Helper()
	s := session{}
	if repartition != nil {
		s.balancer = func() policy.Balancer { return &script{next: repartition} }
	}
	out := s.train(t, c)
	if len(out.losses) != c.Train.Steps || out.hash == "" {
		t.Fatalf("%d steps and hash %q, want %d steps and a hash", len(out.losses), out.hash, c.Train.Steps)
	}
	return out
}

// made trains with a goroutine for each rank, on the virtual clock. setup changes the setup of a
// rank, its kernels for example, and begin changes the rank.
func made(t *testing.T, c config.Config, watch watcher, setup func(rank int, clock *device.Clock, s *train.Setup), begin func(rank int, r *train.Rank)) *run {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	expect.OK(t, local.Run(c.Parallel.Stages*c.Parallel.Replicas, func(tr comm.Transport) error {
		clock := device.NewVirtual()
		first, err := train.PlanFirst(c)
		if err != nil {
			return err
		}
		s := train.Setup{
			Config: c, First: first, World: comm.New(tr, comm.Options{Clock: clock}), Device: cpu.New(clock), Corpus: corpus,
			Stop: func() bool { return false }, Observe: watch,
		}
		setup(tr.Rank(), clock, &s)
		r, err := train.New(s)
		if err != nil {
			return err
		}
		if begin != nil {
			begin(tr.Rank(), r)
		}
		out, err := r.Loop()
		if err != nil {
			return err
		}
		if tr.Rank() == 0 {
			watch.base().hash = out.Hash
		}
		r.Close()
		return r.Leave()
	}))
	return watch.base()
}
