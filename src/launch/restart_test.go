package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/elastic"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/plan"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/schedule"
)

// lines is an observer that keeps log lines and the kinds of events.
type lines struct {
	run
	said  []string
	kinds []string
}

func (l *lines) Say(text string) { l.said = append(l.said, text) }

func (l *lines) Event(e record.Event) error {
	l.kinds = append(l.kinds, string(e.Kind))
	return l.run.Event(e)
}

// restarting is a balancer that packs the model after a step. It calls a function first.
type restarting struct {
	*regrouping
	before func()
}

func (r *restarting) Decide(m profile.Measurement, now layout.Layout) (layout.Layout, plan.Reason, error) {
	next, why, err := r.regrouping.Decide(m, now)
	if err == nil && next.Stages() < now.Stages() {
		why = plan.Reason{Decided: true, Pack: &plan.Packing{Kind: "sustain", Stages: next.Stages(), Exact: true}}
		r.before()
	}
	return next, why, err
}

// TestRestartIsToldOnceSaved: with elastic.release=restart the run ends, packed, once a checkpoint
// is on disk. If no checkpoint can be written it continues unpacked, and reports no packing.
func TestRestartIsToldOnceSaved(t *testing.T) {
	for _, fails := range []bool{false, true} {
		c := small(t)
		c.Parallel.Stages, c.Train.Steps, c.Repack.Kind = 2, 7, "sustain"
		c.Checkpoint.Every = "1000"
		dir, told := t.TempDir(), &lines{}
		s := session{watch: told}
		p := packing{step: 3, stages: 1, microbatches: c.Parallel.Microbatches, kind: schedule.Kind1F1B, chunks: 1}
		s.begin = func(r *rank) {
			r.RunDir, r.Terms = dir, &elastic.Terms{Mode: elastic.Restart, Nodes: []string{"a", "b"}}
			r.Balancer = &restarting{&regrouping{&script{next: scatter(3)}, p}, func() {
				if ckpt := filepath.Join(dir, record.CheckpointDir); fails && r.World.Rank() == 0 {
					expect.OK(t, os.RemoveAll(ckpt))
					expect.OK(t, os.WriteFile(ckpt, nil, 0o600))
				}
			}}
		}
		s.train(t, c)
		out := s.outcome
		packed := strings.Count(strings.Join(told.kinds, " "), string(record.Repack))
		if fails && (out.Next != nil || out.Steps != c.Train.Steps || packed != 0) || !fails && (out.Next == nil || out.Next.Stages != 1 || packed != 1) {
			t.Errorf("fails %v: %+v, events %v", fails, out, told.kinds)
		}
	}
}

// TestOneProcessHasNoNodes: if ranks are goroutines, one line says that Slurm gets no node back.
func TestOneProcessHasNoNodes(t *testing.T) {
	for _, balancer := range []string{"partition", "uniform"} {
		c := small(t)
		c.Parallel.Stages, c.Train.Steps, c.Repack.Kind, c.Balance.Kind = 2, 2, "sustain", balancer
		c.Elastic = config.Elastic{Release: "slurm"}
		told, want := &lines{}, 0
		(&session{watch: told}).train(t, c)
		if balancer == "partition" {
			want = 1
		}
		if n := strings.Count(strings.Join(told.said, "\n"), "warning: elastic.release = \"slurm\""); n != want {
			t.Errorf("%s: %d warnings, want %d: %q", balancer, n, want, told.said)
		}
	}
}
