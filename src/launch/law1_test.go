package launch

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/data"
	"dynmo/src/expect"
	"dynmo/src/kernel/cpu"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/partition/partitiontest"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/random"
	"dynmo/src/record"
	"dynmo/src/trace"
	"dynmo/src/train"
)

// long asks for all cases. Cases that -short leaves out run in the pass of
// build.sh test with kernels in C.
var long = os.Getenv("DYNMO_LONG") == "1"

// small returns settings of a model that trains in milliseconds: a chain of 10
// layers (18 with half grain), pruned every 2 steps from dense over masked to
// CSR.
func small(t *testing.T) config.Config {
	t.Helper()
	text := filepath.Join(t.TempDir(), "corpus.txt")
	expect.OK(t, os.WriteFile(text, []byte(strings.Repeat("the quick brown fox jumps over the lazy dog; ", 200)), 0o600))
	c := config.Default()
	c.Data.Path, c.Data.Extensions = text, nil
	c.Model.Blocks, c.Model.Hidden, c.Model.Heads, c.Model.Sequence = 8, 16, 2, 12
	c.Model.Init = "depth-scaled"
	c.Parallel.Microbatches, c.Parallel.MicrobatchSize = 4, 2
	c.Train.Steps, c.Train.Hash = 12, true
	c.Optimizer.LR, c.Optimizer.Warmup = 3e-3, 3
	c.Dynamic.Kind = "prune"
	c.Assign("prune.start", 2, "prune.every", 2, "prune.times", 4, "prune.csr_from", "0.7")
	if long {
		c.Train.Steps = 30
		c.Assign("prune.start", 5, "prune.every", 5)
	}
	c.Run.Clock = "wall"
	c.Device.Tune = false // or runs that are compared would each choose by what they measure
	return c
}

// quiet ignores what an observer is told of costs and timelines.
type quiet struct{}

func (quiet) Costs(profile.Phase) error { return nil }
func (quiet) Trace(trace.Step) error    { return nil }
func (quiet) Say(string)                {}

// run is a run's losses, gradient norms and final hash: every bit of it is
// claimed to be independent of placement.
type run struct {
	quiet
	losses, norms []record.Float
	hash          string
	moves         int
	behind        int       // moves some of whose bytes followed
	schedules     int       // decisions for another than 1F1B
	sparsity      []float64 // after every pruning
	seconds       []float64 // of every step
	metrics       []record.Metrics
	frozen        []string // every freezing and thawing: its step, what, and how many layers
}

func (r *run) Step(m record.Metrics) error {
	r.losses, r.norms = append(r.losses, m.Loss), append(r.norms, m.GradNorm)
	r.seconds, r.metrics = append(r.seconds, float64(m.StepSeconds)), append(r.metrics, m)
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

// difference says where two runs differ first, "" if they do not.
func (r *run) difference(other *run) string {
	for i := range r.losses {
		if i >= len(other.losses) || r.losses[i] != other.losses[i] || r.norms[i] != other.norms[i] {
			return fmt.Sprintf("step %d", i)
		}
	}
	if r.hash != other.hash {
		return "final weights"
	}
	return ""
}

// scripted returns the cuts of the next step.
type scripted func(step int, now partition.Partition) partition.Partition

// script is a balancer that knows its answers.
type script struct {
	next scripted
	step int
	last layout.Layout // the answer before
}

func (s *script) Decide(_ profile.Measurement, now layout.Layout) (layout.Layout, policy.Reason, error) {
	s.last = now.With(s.next(s.step, now.Cuts), now.Schedule)
	s.step++
	return s.last, policy.Reason{}, nil
}

// scatter returns a random legal partition for every step, the same on all ranks.
func scatter(seed uint64) scripted {
	return func(step int, now partition.Partition) partition.Partition {
		return partitiontest.Random(random.Keyed(seed, uint64(step)), now.Layers(), now.Stages())
	}
}

// goRun trains with a goroutine for each rank.
func goRun(t *testing.T, c config.Config, repartition scripted) *run {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	out := &run{}
	err = local.Run(c.Parallel.Stages*c.Parallel.Replicas, func(tr comm.Transport) error {
		o, err := rankRun(c, tr, corpus, out, repartition)
		if tr.Rank() == 0 {
			out.hash = o.Hash
		}
		return err
	})
	expect.OK(t, err)
	if len(out.losses) != c.Train.Steps || out.hash == "" {
		t.Fatalf("%d steps and hash %q, want %d steps and a hash", len(out.losses), out.hash, c.Train.Steps)
	}
	return out
}

// rankRun trains on one rank.
func rankRun(c config.Config, tr comm.Transport, corpus *data.Corpus, out *run, repartition scripted) (train.Outcome, error) {
	r, err := readyRank(c, tr, corpus, out)
	if err != nil {
		return train.Outcome{}, err
	}
	defer r.Close()
	if repartition != nil {
		r.Balancer = &script{next: repartition}
	}
	return r.Loop()
}

// readyRank returns a rank that is ready to train.
func readyRank(c config.Config, tr comm.Transport, corpus *data.Corpus, o record.Observer) (*rank, error) {
	return newRank(c, tr, Hooks{
		Stop:  func() bool { return false },
		Begin: func(World) (record.Observer, error) { return o, nil },
	}, func() (*data.Corpus, error) { return corpus, nil })
}

// schedules are what law 1 is tested on: kinds with their chunks on a stage, and
// numbers of stages that small's 10 layers and 4 microbatches allow.
var schedules = []struct {
	kind   string
	chunks int
	stages []int
}{
	{"1f1b", 1, []int{1, 2, 4, 8}},
	{"gpipe", 1, []int{4, 8, 2}},
	{"interleaved", 2, []int{2, 4, 1}},
	{"interleaved", 3, []int{2, 1}},
	{"zb-h1", 1, []int{4, 2, 8}},
	{"zb-h2", 1, []int{8, 4, 2}},
	{"zb-v", 2, []int{4, 2, 3, 1}},
}

// variants calls visit with the settings of law 1: one replica or two, a tied
// head or not, whole blocks or halves of them with the head in slices. number is
// even for one half of them, in which any two of these choices still meet in all
// ways. Under -short there are two, with other choices throughout.
func variants(t *testing.T, visit func(c config.Config, number int)) {
	for bits := range 8 {
		replicas, tied, half := bits&1, bits>>1&1, bits>>2
		number := replicas + tied + half
		if testing.Short() && number%3 != 0 {
			continue
		}
		c := small(t)
		c.Parallel.Replicas, c.Model.Tied = 1+replicas, tied == 0
		c.Model.Grain, c.Model.HeadShards = []string{"block", "half"}[half], []int{1, 4}[half]
		visit(c, number)
	}
}

// TestPlacementChangesNothing is law 1: 12 steps with pruning every 2, random
// migrations after every step, on every schedule; every loss, gradient norm and
// the final hash equal bit for bit those of one stage that never moved a layer.
// A schedule runs with one half of the variants, and with DYNMO_LONG=1 with all.
func TestPlacementChangesNothing(t *testing.T) {
	cases := make(map[int]int) // of each schedule so far: all but 1f1b go through their numbers of stages
	variants(t, func(c config.Config, number int) {
		still := goRun(t, c, nil)
		if still.moves != 0 || still.losses[0] <= still.losses[len(still.losses)-1] {
			t.Fatalf("reference: %d moves, loss from %v to %v", still.moves, still.losses[0], still.losses[len(still.losses)-1])
		}
		if n := len(still.sparsity); n != 5 || math.Abs(still.sparsity[4]-0.9) > 1e-3 {
			t.Fatalf("sparsities %v, want five up to 0.9", still.sparsity)
		}
		for k, schedule := range schedules {
			for i, stages := range schedule.stages {
				if schedule.kind == "1f1b" {
					if !long && (number+i)%2 != 0 {
						continue
					}
				} else if !long && (number+k)%2 != 0 || i != cases[k]%len(schedule.stages) {
					continue
				}
				c.Parallel.Stages, c.Schedule.Kind, c.Schedule.Chunks = stages, schedule.kind, schedule.chunks
				t.Run(variant(c), func(t *testing.T) {
					moved := goRun(t, c, scatter(uint64(stages)))
					if stages > 1 && moved.moves < c.Train.Steps/2 {
						t.Errorf("only %d of %d steps moved layers", moved.moves, c.Train.Steps)
					}
					if at := moved.difference(still); at != "" {
						t.Errorf("differs from one stage at %s", at)
					}
				})
			}
			if long || (number+k)%2 == 0 {
				cases[k]++
			}
		}
	})
}

// variant names the settings of a case of law 1.
func variant(c config.Config) string {
	return fmt.Sprintf("D=%d/tied=%v/%s/slices=%d/%s/V=%d/P=%d",
		c.Parallel.Replicas, c.Model.Tied, c.Model.Grain, c.Model.HeadShards, c.Schedule.Kind, c.Schedule.Chunks, c.Parallel.Stages)
}

// TestBalancersChangeNothing is law 1 with the real balancers, whose decisions
// follow measured times and differ from run to run.
func TestBalancersChangeNothing(t *testing.T) {
	skipUnlessC(t)
	c := small(t)
	still := goRun(t, c, nil)
	c.Parallel.Stages = 4
	for _, clock := range []string{"wall", "virtual"} {
		for _, by := range []string{"time", "param"} {
			for kind, every := range map[string]string{
				"uniform": "auto", "param": "auto", "regex": "auto", "partition": "3", "diffusion": "4",
			} {
				c.Run.Clock, c.Balance.By, c.Balance.Kind, c.Balance.Every = clock, by, kind, every
				t.Run(fmt.Sprintf("%s/%s/%s", clock, kind, by), func(t *testing.T) {
					got := goRun(t, c, nil)
					if at := got.difference(still); at != "" {
						t.Errorf("differs from one stage at %s", at)
					}
					if every == "auto" && got.moves > 0 {
						t.Errorf("a static balancer moved layers %d times", got.moves)
					}
					if every != "auto" && by == "param" && got.moves == 0 {
						t.Error("no layer moved, though pruning is uneven")
					}
				})
			}
		}
	}
	// Schedules that follow from measured costs change in mid-run.
	for _, schedule := range []string{"list", "auto"} {
		for _, kind := range []string{"uniform", "partition", "diffusion"} {
			c.Schedule.Kind, c.Balance.Kind, c.Balance.By, c.Balance.Every = schedule, kind, "time", "3"
			got := goRun(t, c, nil)
			if at := got.difference(still); at != "" {
				t.Errorf("%s, %s: differs from one stage at %s", schedule, kind, at)
			}
			if got.schedules < 3 {
				t.Errorf("%s, %s: the schedule was planned %d times", schedule, kind, got.schedules)
			}
		}
	}
	c.Schedule.Kind, c.Balance.Every, c.Balance.Kind = "1f1b", "auto", "partition"
	if at := goRun(t, c, nil).difference(still); at != "" {
		t.Errorf("balance.every = auto differs from one stage at %s", at)
	}
	c.Balance.Every, c.Balance.By = "3", "param"
	for kind, stages := range map[string]int{"interleaved": 4, "zb-v": 3} {
		c.Schedule.Kind, c.Parallel.Stages = kind, stages
		got := goRun(t, c, nil)
		if at := got.difference(still); at != "" {
			t.Errorf("%s: differs from one stage at %s", kind, at)
		}
		if got.moves == 0 {
			t.Errorf("%s: no layer moved, though pruning is uneven", kind)
		}
	}
}

// TestThreadsChangeNothing is law 1 over the threads of a rank, on layers wide
// enough to be worth sharing, with the head whole and in slices; with
// DYNMO_LONG=1 every number of threads on one stage and on three.
func TestThreadsChangeNothing(t *testing.T) {
	if !cpu.Built {
		t.Skip("built without the tag blas: kernels of one thread only")
	}
	c := small(t)
	c.Model.Blocks, c.Model.Hidden, c.Model.Heads, c.Model.Sequence, c.Model.Vocab = 2, 256, 4, 64, 2048
	c.Train.Steps = 5
	c.Assign("prune.start", 1, "prune.every", 1, "prune.times", 3, "prune.initial", 0.3)
	for _, slices := range []int{1, 4} {
		c.Model.HeadShards = slices
		c.Parallel.Stages, c.Device.Threads = 1, 1
		still := goRun(t, c, nil)
		for _, threads := range []int{1, 2, 3} {
			for _, stages := range []int{1, 3} {
				if !long && (threads == 2) != (stages == 1) {
					continue
				}
				c.Parallel.Stages, c.Device.Threads = stages, threads
				if at := goRun(t, c, scatter(uint64(threads))).difference(still); at != "" {
					t.Errorf("%d slices, %d stages, %d threads: differs from one stage and thread at %s", slices, stages, threads, at)
				}
			}
		}
	}
}

// TestRandomShapes is law 1 on odd shapes: few microbatches, single tokens,
// as many stages as layers, three replicas, on any schedule: 10 draws, with
// DYNMO_LONG=1 50.
func TestRandomShapes(t *testing.T) {
	seeds := uint64(10)
	switch {
	case long:
		seeds = 50
	case testing.Short():
		seeds = 3
	}
	for seed := range seeds {
		draw := random.Keyed(seed, 77)
		pick := func(lo, hi int) int { return lo + draw.IntN(hi-lo+1) }
		c := small(t)
		c.Model.Heads = pick(1, 3)
		c.Model.Blocks, c.Model.Hidden, c.Model.Sequence = pick(1, 5), c.Model.Heads*pick(1, 9), pick(1, 9)
		c.Model.Vocab, c.Model.Tied = pick(256, 300), pick(0, 1) == 1
		c.Model.Grain, c.Model.HeadShards = []string{"block", "half"}[pick(0, 1)], pick(1, 4)
		c.Parallel.Replicas, c.Parallel.Microbatches, c.Parallel.MicrobatchSize = pick(1, 3), pick(1, 5), pick(1, 3)
		c.Mesh.Order = []string{"stage-major", "replica-major"}[pick(0, 1)]
		c.Assign("prune.select", []string{"radix", "gather"}[pick(0, 1)])
		c.Train.Steps = 8
		c.Assign("prune.start", 1, "prune.every", pick(1, 2))
		kind := []string{"1f1b", "gpipe", "zb-h1", "zb-h2", "zb-v", "interleaved"}[pick(0, 5)]
		stages, chunks := pick(2, c.Layers()), 1
		switch kind {
		case "zb-v":
			chunks, stages = 2, min(stages, c.Layers()/2)
		case "interleaved":
			stages = min(stages, c.Layers()/2)
			chunks, c.Parallel.Microbatches = pick(2, c.Layers()/stages), stages*pick(1, 2)
		}
		still := goRun(t, c, nil)
		c.Parallel.Stages, c.Schedule.Kind, c.Schedule.Chunks = stages, kind, chunks
		if at := goRun(t, c, scatter(seed)).difference(still); at != "" {
			t.Errorf("seed %d, %+v, %+v, %+v: differs from one stage at %s", seed, c.Model, c.Parallel, c.Schedule, at)
		}
	}
}
