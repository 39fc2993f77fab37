package launch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/lab/report"
	"dynmo/src/lab/study"
	"dynmo/src/layout"
	"dynmo/src/partition/partitiontest"
	"dynmo/src/plan"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/random"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/trace"
	"dynmo/src/train"
)

// shrinking is a balancer that removes stages at some steps, and moves layers at random, in these
// steps too. The remaining ranks are those of the fewest made-up nodes, or any.
type shrinking struct {
	*script
	config config.Config
	stages map[int]int // by step: number of stages from the step on
	seed   uint64
}

func (s *shrinking) Decide(m profile.Measurement, now layout.Layout) (layout.Layout, plan.Reason, error) {
	stages, shrinks := s.stages[s.step]
	next, why, err := s.script.Decide(m, now)
	if err != nil || !shrinks {
		return next, why, err
	}
	why.Pack = &plan.Packing{Kind: "sustain", Stages: stages, Throughput: 0.99, Exact: true}
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

// order returns the schedule of the settings' kind for a number of stages.
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

// recorded is an observer that writes a run directory.
type recorded struct {
	*record.Run
	all run
}

func (r *recorded) base() *run               { return &r.all }
func (r *recorded) Trace(s trace.Step) error { return r.Run.Trace(s) }
func (*recorded) Say(string)                 {}

// TestLeavingIsRecorded: a run that loses stages records the layout of each step. Its records can
// be read again, the page shows them, and the simulation of its phases uses their layouts.
func TestLeavingIsRecorded(t *testing.T) {
	c := small(t)
	c.Parallel.Stages, c.Parallel.Replicas, c.Run.Clock = 5, 2, "virtual"
	dir := filepath.Join(t.TempDir(), "run")
	files, err := record.Open(dir, c.TOML(), record.Here(false))
	expect.OK(t, err)
	shrunk(t, c, map[int]int{4: 3, 9: 1}, 2, &recorded{Run: files})
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
		if got, want := len(line.Stages), stages(line.Step); got != want {
			t.Errorf("timeline of step %d on %d stages, want %d", line.Step, got, want)
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
	series, err := record.ReadSeries(record.CostsFile, f, c.Layers())
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

// shrunk trains with a balancer that removes stages. It returns how many ranks left before the end.
func shrunk(t *testing.T, c config.Config, stages map[int]int, seed uint64, w watcher) (out *run, left int64) {
	t.Helper()
	var leavers atomic.Int64
	s := session{
		watch:    w,
		balancer: func() policy.Balancer { return &shrinking{&script{next: scatter(3)}, c, stages, seed} },
		end: func(_ *rank, o train.Outcome) error {
			if o.Left {
				leavers.Add(1)
			}
			return nil
		},
	}
	return s.train(t, c), leavers.Load()
}
