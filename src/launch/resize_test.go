package launch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/data"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition/partitiontest"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/random"
	"dynmo/src/record"
	"dynmo/src/report"
	"dynmo/src/schedule"
	"dynmo/src/study"
	"dynmo/src/trace"
	"dynmo/src/train"
)

// shrinking is a balancer that takes stages away at some steps, and moves layers at random,
// in these steps too. The ranks that stay are those of the fewest of made-up nodes, or any.
type shrinking struct {
	*script
	config config.Config
	stages map[int]int // by step: stages from then on
	seed   uint64
}

func (s *shrinking) Decide(m profile.Measurement, now layout.Layout) (layout.Layout, policy.Reason, error) {
	stages, shrinks := s.stages[s.step]
	next, why, err := s.script.Decide(m, now)
	if err != nil || !shrinks {
		return next, why, err
	}
	why.Pack = &policy.Packing{Kind: "sustain", Stages: stages, Throughput: 0.99, Exact: true}
	draw := random.Keyed(s.seed, uint64(s.step))
	order, err := s.order(stages, now.Schedule.Microbatches)
	if err != nil {
		return now, why, err
	}
	next = now.With(partitiontest.Random(draw, now.Cuts.Layers(), order.Map.Virtual()), order)
	present := now.WorldRanks()
	if s.seed%2 == 0 {
		nodes, bytes := make([]int, slices.Max(present)+1), make([]int64, len(m.Layers))
		for rank := range nodes {
			nodes[rank] = draw.IntN(len(present))
		}
		for l := range bytes {
			bytes[l] = m.Layers[l].Bytes.Static()
		}
		next.Ranks = layout.Compact(now, next, nodes, bytes)
	} else {
		draw.Shuffle(len(present)-1, func(i, j int) { present[i+1], present[j+1] = present[j+1], present[i+1] })
		next.Ranks = present[:next.Mesh.Size()]
	}
	return next, why, nil
}

// order returns the schedule of the settings' kind for so many stages.
func (s *shrinking) order(stages, microbatches int) (schedule.Schedule, error) {
	kind, chunks := schedule.Kind(s.config.Schedule.Kind), s.config.Schedule.Virtual()
	if kind == schedule.KindList {
		costs := make([]cost.Stage, stages)
		for stage := range costs {
			costs[stage] = cost.Stage{Forward: 1, Input: 1 + float64(stage), Weight: 1}
		}
		return schedule.List(schedule.ListOptions{Costs: costs, Microbatches: microbatches, InFlight: slices.Repeat([]int{2}, stages)}), nil
	}
	return schedule.New(kind, stages, chunks, microbatches)
}

// departures are cases of law 1 where ranks leave: a kind of change, and how its model differs
// from small's. Experts that replicas share out want as many in each of one to three.
var departures = []struct {
	mix
	of func(config.Config) config.Config
}{
	{mix{"prune", nil}, nil}, {mix{"freeze", byPlasticity}, nil}, {mix{"exit", softmax}, nil}, {mix{"mod", topk}, nil},
	{mix{"moe", nil}, experts}, {mix{"moe", nil}, spread}, {mix{"moe+exit", saturation}, spread}, {mix{"freeze+moe+mod", byStep}, spread},
	{mix{"prune+freeze+exit+mod", byPlasticity}, nil},
}

// experts is a LLaMA whose replicas have all experts.
func experts(c config.Config) config.Config {
	c = llama(c)
	c.Assign("moe.experts", 5, "moe.top", 2, "moe.intermediate", 24)
	return c
}

// departing returns settings under which ranks leave: so many stages of replicas, under a
// schedule of a kind.
func departing(t *testing.T, number int, kind string, replicas int, order string) config.Config {
	t.Helper()
	k := departures[number]
	c := k.mix.of(small(t))
	if k.of != nil {
		c = k.of(c)
		if k.set != nil {
			k.set(&c)
		}
	}
	c.Train.Steps, c.Parallel.Replicas, c.Mesh.Order = 10, replicas, order
	c.Schedule.Kind, c.Schedule.Chunks = kind, 2
	return c
}

// TestLeavingChangesNothing is law 1 where ranks leave in mid-run: from 4 stages to 3 (or,
// where a schedule wants it, 2) to 1, on either order of ranks, of one, two and three
// replicas, under every kind of schedule and of change. The ranks that stay are any of
// them, layers move in the same decision, and every loss, gradient norm and the final hash
// is that of one stage. With DYNMO_LONG=1 all with all, else each at least once.
func TestLeavingChangesNothing(t *testing.T) {
	schedules := []string{"1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v", "zb-interleaved", "list"}
	seed := uint64(0)
	for number, k := range departures {
		for replicas := 1; replicas <= 3; replicas++ {
			if !long && replicas != 1+number%3 {
				continue
			}
			var still *run
			for i, kind := range schedules {
				if !long && i != number%len(schedules) {
					continue
				}
				for j, order := range []string{"stage-major", "replica-major"} {
					if !long && j != (number/3+i)%2 {
						continue
					}
					c := departing(t, number, kind, replicas, order)
					if still == nil {
						still = goRun(t, onOne(c), nil)
					}
					c.Parallel.Stages = 4
					seed++
					t.Run(k.name(c)+"/"+order, func(t *testing.T) {
						leaves(t, c, seed, still)
					})
				}
			}
		}
	}
}

// leaves trains while ranks leave, and fails the test where the run differs from one that
// never changed its stages.
func leaves(t *testing.T, c config.Config, seed uint64, still *run) {
	t.Helper()
	fewer := 3
	if strings.Contains(c.Schedule.Kind, "interleaved") {
		fewer = 2 // of which microbatches are a multiple
	}
	out := &run{}
	hash, left := shrunk(t, c, map[int]int{2: fewer, 6: 1}, seed, out)
	out.hash = hash
	same(t, out, still)
	if want := int64(3 * c.Parallel.Replicas); left != want || len(out.losses) != c.Train.Steps {
		t.Errorf("%d ranks left and %d steps were run, want %d and %d", left, len(out.losses), want, c.Train.Steps)
	}
}

// recorded writes a run directory.
type recorded struct{ *record.Run }

func (r recorded) Trace(s trace.Step) error { return r.Run.Trace(s, 0) }
func (recorded) Say(string)                 {}

// TestLeavingIsRecorded: the records of a run that loses stages are those of each
// step's layout. They are read again, the page shows them, and phases are simulated
// as they ran.
func TestLeavingIsRecorded(t *testing.T) {
	c := small(t)
	c.Parallel.Stages, c.Parallel.Replicas, c.Run.Clock = 5, 2, "virtual"
	dir := filepath.Join(t.TempDir(), "run")
	files, err := record.Open(dir, c.TOML(), record.Here(false))
	expect.OK(t, err)
	shrunk(t, c, map[int]int{4: 3, 9: 1}, 2, recorded{files})
	expect.OK(t, files.Close())
	r, err := report.ReadAll(dir)
	expect.OK(t, err)
	stages := func(step int) int {
		switch {
		case step <= 4:
			return 5
		case step <= 9:
			return 3
		}
		return 1
	}
	for i, m := range r.Metrics {
		want := stages(i)
		layers := 0
		for _, n := range m.LayersPerStage {
			layers += n
		}
		if m.Step != i || len(m.LayersPerStage) != want || len(m.BytesPerStage) != want || layers != c.Layers() || !(m.Predicted > 0) || m.Ranks != 2*want || m.Nodes != 1 {
			t.Errorf("step %d: %+v, want %d stages", i, m, want)
		}
	}
	for _, line := range r.Timelines {
		if got, want := len(line.Stages), stages(line.Step.Step); got != want {
			t.Errorf("timeline of step %d on %d stages, want %d", line.Step.Step, got, want)
		}
	}
	var page, table strings.Builder
	expect.OK(t, report.HTML(&page, r))
	expect.OK(t, report.Packings(&table, []report.Run{r}))
	for _, text := range []string{page.String(), table.String()} {
		if !strings.Contains(text, "packed from 10 ranks to 2; on average ") {
			t.Errorf("no sentence of packing in\n%s", text)
		}
	}
	var steps []int
	for _, e := range r.Events {
		if e.Kind != record.Repack {
			continue
		}
		var p record.Packed
		expect.OK(t, e.Read(&p))
		steps = append(steps, e.Step)
		if p.RanksBefore != 2*stages(e.Step) || p.Ranks != 2*stages(e.Step+1) || !p.Exact || !(p.Deciding > 0) || !(p.Moving > 0) || !(p.Resizing > 0) {
			t.Errorf("packing behind step %d: %+v", e.Step, p)
		}
	}
	if !slices.Equal(steps, []int{4, 9}) {
		t.Errorf("packings behind steps %v, want 4 and 9", steps)
	}
	f, err := os.Open(filepath.Join(dir, record.CostsFile))
	expect.OK(t, err)
	defer f.Close()
	series, err := profile.ReadSeries(record.CostsFile, f, c.Layers())
	expect.OK(t, err)
	all := 0
	for _, p := range study.Replay(series) {
		all += p.Steps
		if !(p.Predicted > 0) || p.Ahead < 0 {
			t.Errorf("%+v", p)
		}
	}
	if all != c.Train.Steps {
		t.Errorf("phases of %d steps, want %d", all, c.Train.Steps)
	}
}

// shrunk trains with a balancer that takes stages away. It returns the final hash,
// and how many ranks left before the end.
func shrunk(t *testing.T, c config.Config, stages map[int]int, seed uint64, o record.Observer) (hash string, left int64) {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	var leavers atomic.Int64
	err = local.Run(c.Parallel.Stages*c.Parallel.Replicas, func(tr comm.Transport) error {
		r, err := readyRank(c, tr, corpus, o)
		if err != nil {
			return err
		}
		r.Balancer = &shrinking{&script{next: scatter(3)}, c, stages, seed}
		var out train.Outcome
		if out, err = r.Loop(); err != nil {
			return err
		}
		if out.Left {
			leavers.Add(1)
		}
		if tr.Rank() == 0 {
			hash = out.Hash
		}
		r.Close()
		return r.Leave()
	})
	expect.OK(t, err)
	return hash, leavers.Load()
}
