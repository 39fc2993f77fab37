package report

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/record"
)

// recorded writes a run of eight steps, pruned before the fourth: steps take
// scale seconds before it and half of that after it.
func recorded(t *testing.T, kind string, scale float64) Run {
	t.Helper()
	c := config.Default()
	c.Balance.Kind = kind
	c.Parallel.Stages = 2
	dir := filepath.Join(t.TempDir(), kind)
	run, err := record.Open(dir, c.TOML(), record.Here(false))
	expect.OK(t, err)
	for step := range 8 {
		seconds := scale
		if step >= 4 {
			seconds /= 2
		}
		m := record.Metrics{
			Step: step, Clock: "virtual", Loss: record.Float(5 - float64(step)/8),
			StepSeconds: record.Float(seconds), BalanceSeconds: record.Float(seconds / 100),
			Makespan: record.Float(0.9 * seconds), Predicted: record.Float(0.88 * seconds),
			Bottleneck: record.Float(seconds / 10), Optimum: record.Float(seconds / 12),
			BubbleRatio: 0.25, Imbalance: record.Float(scale), Headroom: 1.2,
		}
		if step >= 4 {
			m.Sparsity = 0.75
		}
		expect.OK(t, run.Step(m))
	}
	for _, e := range []record.Event{
		{Step: 4, Kind: record.Dynamic, Seconds: 0.5, Detail: map[string]any{"sparsity": 0.75}},
		{Step: 5, Kind: record.Migrate, Bytes: 3_000_000},
		{Step: 6, Kind: record.Migrate, Bytes: 1_500_000},
	} {
		expect.OK(t, run.Event(e))
	}
	expect.OK(t, run.Close())
	r, err := Read(dir)
	expect.OK(t, err)
	return r
}

func TestTables(t *testing.T) {
	runs := []Run{recorded(t, "uniform", 2), recorded(t, "partition", 1)}
	var text strings.Builder
	expect.OK(t, Table(&text, runs, true))
	text.WriteString("\n")
	expect.OK(t, Phases(&text, runs, true))
	expect.Golden(t, "testdata/tables.txt", text.String())
}

// Rows that only the run's directory tells apart have its name.
func TestDistinguish(t *testing.T) {
	run := func(dir, name, balancer string) Run {
		r := Run{Dir: "runs/" + dir, Config: config.Default()}
		r.Config.Run.Name, r.Config.Balance.Kind = name, balancer
		return r
	}
	runs := []Run{run("a", "x", "uniform"), run("b", "x", "partition"), run("c", "x", "partition"), run("d", "y", "uniform"),
		run("p/e", "z", "uniform"), run("q/e", "z", "uniform"), run("q/e", "z", "uniform")}
	Distinguish(runs)
	var labels []string
	for _, r := range runs {
		labels = append(labels, r.label())
	}
	if want := []string{"x", "b", "c", "y", "runs/p/e", "runs/q/e", "runs/q/e"}; !slices.Equal(labels, want) {
		t.Errorf("labels %q, want %q", labels, want)
	}
}

// TestTablesAreNarrow: a table is for 100 columns, as is what explains it, unless all of
// them are wanted.
func TestTablesAreNarrow(t *testing.T) {
	runs := []Run{recorded(t, "uniform", 2), recorded(t, "partition", 1)}
	for i := range runs {
		runs[i].Config.Run.Name, runs[i].Metrics[7].Loss = "demo-4x1", 3.7291121286485227
	}
	var text strings.Builder
	expect.OK(t, Table(&text, runs, false))
	expect.OK(t, Phases(&text, runs, false))
	if out := text.String(); !strings.Contains(out, "3.7291121286485227") || strings.Contains(out, "imbalance") {
		t.Errorf("columns:\n%s", out)
	}
	for line := range strings.Lines(text.String()) {
		if len(line) > 101 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct{ name, file, contents, want string }{
		{"no steps", "metrics.jsonl", "", "no step was recorded"},
		{"broken line", "metrics.jsonl", "{\"step\":0}\n{\"step\":\n{\"step\":2}\n", "metrics.jsonl:2: "},
		{"broken event", "events.jsonl", "{\"step\":\"x\"}\n", "events.jsonl:1: "},
		{"wrong setting", "config.toml", "[model]\nblocks = -1\n", "model.blocks = -1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := recorded(t, "uniform", 1)
			expect.OK(t, os.WriteFile(filepath.Join(r.Dir, c.file), []byte(c.contents), 0o600))
			if _, err := Read(r.Dir); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want …%s…", err, c.want)
			}
		})
	}
	if _, err := Read(t.TempDir()); err == nil {
		t.Error("an empty directory was read")
	}
}

func TestPhasesMustMatch(t *testing.T) {
	a, b := recorded(t, "uniform", 1), recorded(t, "param", 1)
	b.Events = nil
	if err := Phases(&strings.Builder{}, []Run{a, b}, false); err == nil || !strings.Contains(err.Error(), "phases") {
		t.Errorf("error %v, want one about phases", err)
	}
}
