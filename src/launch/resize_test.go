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
	"dynmo/src/data"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/plan"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/report"
	"dynmo/src/schedule"
	"dynmo/src/study"
	"dynmo/src/trace"
	"dynmo/src/train"
)

// shrinking is a balancer that takes stages away at some steps, and otherwise
// moves layers at random.
type shrinking struct {
	*script
	stages map[int]int // by step: stages from then on
}

func (s *shrinking) Decide(m profile.Measurement, now layout.Layout) (layout.Layout, plan.Reason, error) {
	stages, shrinks := s.stages[s.step]
	next, why, err := s.script.Decide(m, now)
	if err != nil || !shrinks {
		return next, why, err
	}
	why.Pack = &plan.Packing{Kind: "sustain", Stages: stages, Throughput: 0.99, Exact: true}
	order, err := schedule.New(schedule.Kind1F1B, stages, 1, now.Schedule.Microbatches)
	cuts := make(partition.Partition, stages+1)
	for i := range cuts {
		cuts[i] = i * now.Cuts.Layers() / stages
	}
	return now.With(cuts, order), why, err
}

// TestLeavingChangesNothing is law 1 where ranks leave in mid-run: from 5 stages
// to 3 to 1, on either order of ranks; ranks that are left outside end, the others
// train on, and every loss, gradient norm and the final hash is that of one stage.
func TestLeavingChangesNothing(t *testing.T) {
	for _, order := range []string{"stage-major", "replica-major"} {
		for _, replicas := range []int{1, 2} {
			c := small(t)
			c.Parallel.Replicas, c.Mesh.Order = replicas, order
			still := goRun(t, c, nil)
			c.Parallel.Stages = 5
			out := &run{}
			hash, left := shrunk(t, c, map[int]int{4: 3, 11: 1}, out)
			out.hash = hash
			if at := out.difference(still); at != "" {
				t.Errorf("D=%d, %s: differs from one stage at %s", replicas, order, at)
			}
			if want := int64(4 * replicas); left != want || len(out.losses) != c.Train.Steps {
				t.Errorf("D=%d, %s: %d ranks left and %d steps were run, want %d and %d", replicas, order, left, len(out.losses), want, c.Train.Steps)
			}
		}
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
	shrunk(t, c, map[int]int{4: 3, 11: 1}, recorded{files})
	expect.OK(t, files.Close())
	r, err := report.ReadAll(dir)
	expect.OK(t, err)
	stages := func(step int) int {
		switch {
		case step <= 4:
			return 5
		case step <= 11:
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
	if !slices.Equal(steps, []int{4, 11}) {
		t.Errorf("packings behind steps %v, want 4 and 11", steps)
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
func shrunk(t *testing.T, c config.Config, stages map[int]int, o record.Observer) (hash string, left int64) {
	t.Helper()
	corpus, err := data.Open(c.Data, c.Model.Vocab, c.Model.Sequence)
	expect.OK(t, err)
	var leavers atomic.Int64
	err = local.Run(c.Parallel.Stages*c.Parallel.Replicas, func(tr comm.Transport) error {
		r, err := readyRank(c, tr, corpus, o)
		if err != nil {
			return err
		}
		r.Balancer = &shrinking{&script{next: scatter(3)}, stages}
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
