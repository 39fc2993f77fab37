package report

import (
	"io"
	"slices"
	"strings"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/lab/verdict"
	"dynmo/src/layout"
	"dynmo/src/partition"
	"dynmo/src/record"
	"dynmo/src/schedule"
)

func TestHeadline(t *testing.T) {
	for _, c := range []struct {
		worth  verdict.Result
		packed bool
		want   string
	}{
		{verdict.Result{Moved: true, Speedup: 1.62, Low: 1.58, High: 1.66, Ceiling: 1.7, Draws: 200}, false, "1.62x faster than static placement (1.58 to 1.66; ceiling 1.70)"},
		{verdict.Result{Moved: true, Speedup: 1.62, Low: 1.62, High: 1.62, Ceiling: 1.7}, false, "1.62x faster than static placement (ceiling 1.70)"},
		{verdict.Result{Moved: true, Speedup: 1.01, Low: 0.99, High: 1.03, Ceiling: 1.05, Draws: 40}, false, "within noise of static placement: 1.01x (0.99 to 1.03; ceiling 1.05)"},
		{verdict.Result{Moved: true, Speedup: 1.004, Low: 1.003, High: 1.005, Ceiling: 1.05, Draws: 40}, false, "within noise of static placement: 1.00x (1.00 to 1.00; ceiling 1.05)"},
		{verdict.Result{Moved: true, Speedup: 0.9, Low: 0.88, High: 0.92, Ceiling: 1.05, Draws: 40}, false, "0.90x, slower than static placement (0.88 to 0.92; ceiling 1.05)"},
		{verdict.Result{Moved: true, Speedup: 0.9, Ceiling: 1.05}, true, "0.90x, slower than static placement without packing (ceiling 1.05)"},
		{verdict.Result{Speedup: 1, Ceiling: 1.4}, false, "layers never moved; the best cuts would be 1.40x faster"},
		{verdict.Result{Speedup: 0.96, Ceiling: 1.4, Used: 10, Price: 0.4}, false, "layers never moved; the best cuts would be 1.40x faster; measuring and deciding cost 3.0 % of the time"},
		{verdict.Result{Speedup: 0.96, Ceiling: 1, Used: 10, Price: 0.4}, false, "balancing gained nothing: the first cuts were already the best; measuring and deciding cost 3.0 % of the time"},
		{verdict.Result{Moved: true, Speedup: 0.06, Ceiling: 1.4, Doubt: "4 ranks on the 2 cores of host a"}, false, "the speedup is not meaningful: 4 ranks on the 2 cores of host a"},
		{verdict.Result{Speedup: 1, Ceiling: 1.004}, false, "balancing gained nothing: the first cuts were already the best"},
	} {
		if got := Headline(c.worth, c.packed, 0.03); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// costly adds costs of layers to a recorded run: on two stages, with the given cuts for four steps
// each. The last of four layers costs as much as the other three.
func costly(t *testing.T, r Run, cuts ...int) Run {
	t.Helper()
	order, err := schedule.New(schedule.Kind1F1B, 2, 1, r.Config.Parallel.Microbatches)
	expect.OK(t, err)
	var table cost.Table
	table.Clock = "virtual"
	for l := range r.Config.Layers() {
		ms := 1e-3
		if l == r.Config.Layers()-1 {
			ms *= float64(r.Config.Layers() - 1)
		}
		table.Layers = append(table.Layers, cost.Layer{Forward: ms, BackwardInput: ms, BackwardWeight: ms})
	}
	run, err := record.Open(t.TempDir()+"/run", r.Config.TOML(), record.Provenance{})
	expect.OK(t, err)
	for _, m := range r.Metrics {
		expect.OK(t, run.Step(m))
	}
	for i, cut := range cuts {
		expect.OK(t, run.Costs(record.Phase{
			Phase: cost.Phase{Step: 4 * i, Steps: 4, Table: table},
			Run:   &record.Course{Layout: layout.New(partition.Partition{0, cut, len(table.Layers)}, order, 1, layout.StageMajor), Makespan: 1},
		}))
	}
	expect.OK(t, run.Close())
	r, err = Read(run.Dir())
	expect.OK(t, err)
	return r
}

// TestWorthTable: two runs of the same work are compared with each other, one of other
// work and one without costs are not.
func TestWorthTable(t *testing.T) {
	static, moving := recorded(t, "uniform", 2), recorded(t, "partition", 1)
	layers := static.Config.Layers()
	runs := []Run{
		costly(t, moving, layers/2, layers-1), costly(t, static, layers/2, layers/2), costly(t, moving, layers/2), moving,
	}
	var text strings.Builder
	worths, err := Weigh(runs)
	expect.OK(t, err)
	expect.OK(t, worths.Table(&text))
	expect.Golden(t, "testdata/worth.txt", text.String())
	if list := worths.Verdicts(); len(list) == 0 || !strings.Contains(list[0], " faster than even cuts that never move (") {
		t.Errorf("%q, want a comparison with the run of uniform cuts", list)
	}
	for line := range strings.Lines(text.String()) {
		if len(line) > 101 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	rows, err := Rows(runs)
	expect.OK(t, err)
	if a, b := rows[0], rows[3]; a.Speedup <= 1 || a.Low != a.Speedup || a.Ceiling < a.Speedup || a.Simulated <= 0 || rows[1].Speedup != 1 || b.Speedup == b.Speedup {
		t.Errorf("for programs: %+v, want speedups of all but the last", rows)
	}
	if worths, err := Weigh([]Run{moving, static}); err != nil || worths.Known() || worths.Verdicts() != nil {
		t.Errorf("of runs without costs: %+v, %v", worths, err)
	}
}

// TestWorthBesideASimulatedRun: a simulated run of the same work changes nothing that is said of real runs.
// The table warns that clocks differ, as the page does.
func TestWorthBesideASimulatedRun(t *testing.T) {
	r := recorded(t, "partition", 1)
	layers := r.Config.Layers()
	real := costly(t, r, layers/2, layers-1)
	made := r
	made.Metrics = slices.Clone(r.Metrics)
	for i := range made.Metrics {
		made.Metrics[i].Clock = record.Simulated
	}
	made = costly(t, made, layers/2, layers/2)
	for i := range made.Costs {
		for l := range made.Costs[i].Layers {
			made.Costs[i].Layers[l].Forward *= 1 + float64(l) // other costs than the real run's
		}
	}
	alone, err := Rows([]Run{real})
	expect.OK(t, err)
	beside, err := Rows([]Run{real, made})
	expect.OK(t, err)
	if a, b := alone[0], beside[0]; a.Speedup != b.Speedup || a.Simulated != b.Simulated || a.Ceiling != b.Ceiling || !(a.Speedup > 1) {
		t.Errorf("speedup %v, %v s, ceiling %v; beside a simulated run %v, %v s, %v", a.Speedup, a.Simulated, a.Ceiling, b.Speedup, b.Simulated, b.Ceiling)
	}
	worths, err := Weigh([]Run{real, made})
	expect.OK(t, err)
	if list := worths.Verdicts(); len(list) != 2 {
		t.Errorf("%q, want a verdict for each", list)
	}
	for _, table := range []func(io.Writer, []Run, bool) error{Table, Phases} {
		var text strings.Builder
		expect.OK(t, table(&text, []Run{real, made}, false))
		if !strings.Contains(text.String(), "\nTimes are of different clocks and should not be compared: ") {
			t.Error(text.String())
		}
	}
}

// TestHeadlineOfRun: the headline of a finished run comes from its summary, that of another run
// from its costs. With one stage or without costs there is none.
func TestHeadlineOfRun(t *testing.T) {
	r := recorded(t, "partition", 1)
	layers := r.Config.Layers()
	moved := costly(t, r, layers/2, layers-1)
	gain, err := moved.worth()
	expect.OK(t, err)
	told := Headline(*gain, false, 0)
	if !strings.Contains(told, "x faster than static placement (ceiling ") {
		t.Errorf("%q", told)
	}
	var page strings.Builder
	all, err := ReadAll(moved.Dir)
	expect.OK(t, err)
	expect.OK(t, HTML(&page, all))
	if !strings.Contains(page.String(), told) {
		t.Error("the page lacks the headline")
	}
	expect.OK(t, verdict.Summary{Worth: &verdict.Result{Ceiling: 3}}.Write(moved.Dir))
	ended, err := Read(moved.Dir)
	expect.OK(t, err)
	if gain, err := ended.worth(); err != nil || gain.Ceiling != 3 {
		t.Errorf("%+v, %v", gain, err)
	}
	alone := costly(t, r, layers/2)
	alone.Config.Parallel.Stages = 1
	for _, r := range []Run{r, alone} {
		if worth, err := r.worth(); worth != nil || err != nil {
			t.Errorf("%+v, %v", worth, err)
		}
	}
}
