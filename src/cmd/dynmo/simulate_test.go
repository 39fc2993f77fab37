package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/expect"
	"dynmo/src/lab/report"
	"dynmo/src/lab/study"
)

// read returns the content of a file.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	expect.OK(t, err)
	return string(text)
}

func TestSimulateGolden(t *testing.T) {
	workbench(t, "")
	expect.Golden(t, home+"/testdata/simulate.txt", said(t, "simulate", "run.toml", "--costs", "costs.json", "--dynamic", "freeze", "--steps", "400", "--repack", "0.05"))
}

// TestSimulate: figures of generated runs add up, for any number of ranks. A timeline is a complete
// JSON file.
func TestSimulate(t *testing.T) {
	workbench(t, "")
	costsOf(t, "deep.json", 26)
	write(t, "network.toml", "ranks_per_node = 8\nslow = {5 = 2}\n[node]\nlatency_seconds = 1e-6\nbandwidth_bytes = 1e11\n"+
		"[between]\nlatency_seconds = 1e-5\nbandwidth_bytes = 1e10\n[delay]\nmost = 4.0\nseed = 3\n")
	made := func(kind string, more ...string) []string {
		return append([]string{"--dynamic", kind, "--steps", "60", "--every", "10"}, more...)
	}
	for _, c := range []struct {
		name  string
		args  []string
		ranks int
		steps int
	}{
		{"one table", nil, 4, 1000},
		{"one step", []string{"--steps", "1"}, 4, 1},
		{"prune", made("prune"), 4, 60},
		{"freeze", made("freeze"), 4, 60},
		{"moe", made("moe"), 4, 60},
		{"attention", made("attention"), 4, 60},
		{"exit", made("exit"), 4, 60},
		{"mod", made("mod"), 4, 60},
		{"repacked", made("freeze", "--repack", "0.3"), 4, 60},
		{"packed", made("moe", "--pack", "20=3,40=2"), 4, 60},
		{"diffusion", made("freeze", sets("balance.kind=diffusion", "balance.every=5")...), 4, 60},
		{"auto", made("freeze", sets("schedule.kind=auto")...), 4, 60},
		{"zb-v", made("freeze", sets("schedule.kind=zb-v")...), 4, 60},
		{"sampled", []string{"--dynamic", "exit", "--steps", "300", "--every", "3", "--sample", "7"}, 4, 300},
		{"network", made("prune", "--network", "network.toml"), 4, 60},
		{"720 ranks", append(sets("model.blocks=24", "parallel.stages=24", "parallel.replicas=30", "parallel.microbatches=96"), "--costs", "deep.json"), 720, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := slices.Concat([]string{"simulate", "run.toml", "--costs", "costs.json"}, c.args)
			a := decoded[simAnswer](t, append(args, "--trace", "t.json", "--run-dir", "simulated", "--force")...)
			a.recordedIn(t, "simulated")
			steps, seconds := 0, 0.0
			for _, l := range a.Segments {
				if l.Step != steps {
					t.Errorf("a segment begins at %d, the one before ended at %d", l.Step, steps)
				}
				steps += l.Steps
				seconds += float64(l.Steps) * float64(l.StepSeconds+l.BalanceSeconds)
				if sum := l.Idle.Makespan(); math.Abs(sum/float64(l.Makespan)-1) > 1e-9 {
					t.Errorf("step %d: busy and idle are %v, the makespan %v", l.Step, sum, l.Makespan)
				}
			}
			if a.Ranks != c.ranks || steps != c.steps || math.Abs(seconds/a.Seconds-1) > 1e-9 || a.Clock != "sim" || a.Costs != "sim" {
				t.Errorf("%d ranks, %d steps, %v s of %+v", a.Ranks, steps, seconds, a)
			}
			fewer := slices.ContainsFunc(a.Segments, func(l study.Segment) bool { return l.Stages() < a.Segments[0].Stages() })
			if fewer != (c.name == "repacked" || c.name == "packed") {
				t.Errorf("fewer stages: %v", fewer)
			}
			if (a.Ceiling > 0) != (c.name != "zb-v") || a.Ceiling > 0 && a.Ceiling < 1 {
				t.Errorf("ceiling %v", a.Ceiling)
			}
			if a.Better == nil || a.Speedup != a.Better.Speedup || a.Over != a.Better.Kind {
				t.Errorf("a speedup of %v over %s, the better baseline is %+v", a.Speedup, a.Over, a.Better)
			}
			text := said(t, args...)
			narrow(t, text)
			if a.Better == nil || (a.Ceiling > 0) != strings.Contains(strings.Join(strings.Fields(text), " "), "(ceiling "+ratio(a.Better.Ceiling)+")") {
				t.Error(text)
			}
			if h := a.Head; !(h.Share > 0 && h.Share < 1) || h.Small == nil || !strings.Contains(text, fmt.Sprintf("\nhead          %.1f %% of ", 100*h.Share)) {
				t.Errorf("head %+v in\n%s", h, text)
			}
			if d := a.Dense; math.Abs(d.Step*d.Tokens*float64(steps)/(a.Tokens*a.Seconds)-1) > 1e-9 || math.Abs(d.Tokens/d.Samples-16) > 1e-9 || math.Abs(a.Tokens/a.Samples-16) > 1e-9 {
				t.Errorf("%+v", d)
			}
			for _, b := range a.Baselines {
				if b.Error != "" || b.Speedup != b.Seconds/a.Seconds || math.Abs(b.Tokens*b.Seconds/(a.Tokens*a.Seconds)-1) > 1e-9 || b.Ceiling > 0 && b.Ceiling < b.Speedup {
					t.Errorf("%+v", b)
				}
			}
			if times := a.Moves; (times == 0) != (a.Stayed != "") || (times == 0) != strings.Contains(text, "\nstayed        ") {
				t.Errorf("%d moves, stayed %+v:\n%s", times, a.Stayed, text)
			}
			if !strings.Contains(text, "\nwhole run     "+duration(a.Seconds)+" on ") || strings.Contains(text, "\nrank time ") != fewer {
				t.Error(text)
			}
			var events []struct {
				Phase string  `json:"ph"`
				Start float64 `json:"ts"`
			}
			if err := json.Unmarshal([]byte(read(t, "t.json")), &events); err != nil || len(events) < 10 {
				t.Errorf("%d events, %v", len(events), err)
			}
		})
	}
}

// recordedIn checks that the records of a simulated run have the answer's steps, seconds and moves.
func (a simAnswer) recordedIn(t *testing.T, dir string) {
	t.Helper()
	r, err := report.ReadAll(dir)
	expect.OK(t, err)
	seconds, moves, bytes := 0.0, 0, int64(0)
	for step, m := range r.Metrics {
		if m.Step != step || m.Clock != "sim" || m.Loss == m.Loss {
			t.Fatalf("line %d: step %d, clock %s, loss %v", step, m.Step, m.Clock, m.Loss)
		}
		seconds += float64(m.StepSeconds + m.BalanceSeconds)
	}
	for _, e := range r.Events {
		if e.Moved() {
			moves += max(1, e.Count)
			bytes += e.Bytes
		}
	}
	phases := 0
	for _, p := range r.Costs {
		phases += p.Steps
	}
	if times := a.Moves; len(r.Metrics) != a.Steps || bytes != a.Moved || math.Abs(seconds/a.Seconds-1) > 1e-9 || moves != times || phases != a.Steps || r.End == nil || r.End.Steps != a.Steps {
		t.Errorf("records: %d steps, %d of phases, %v s, %d moves, summary %+v; the answer has %d steps, %v s, %d moves", len(r.Metrics), phases, seconds, moves, r.End, a.Steps, a.Seconds, times)
	}
	if last := r.Metrics[len(r.Metrics)-1]; math.Abs(float64(last.WallSeconds)/a.Seconds-1) > 1e-9 {
		t.Errorf("the last step ends after %v s, want %v", last.WallSeconds, a.Seconds)
	}
}

// TestSimulatedRecordsAreThoseOfARun (law 9): a run is simulated on its own costs. Both directories
// have the same files, kinds of events and keys, except for what a simulation does not know. Readers
// take both. A directory that has a run is refused.
func TestSimulatedRecordsAreThoseOfARun(t *testing.T) {
	workbench(t, "[dynamic]\nkind = \"prune\"\n[prune]\nstart = 4\nevery = 4\ntimes = 2\n")
	if e := says("train", "run.toml", "--run-dir", "real"); e.status != exitDone {
		t.Fatal(e.stderr)
	}
	said(t, "simulate", "run.toml", "--costs", "real/costs.jsonl", "--run-dir", "simulated")
	files := func(dir string) (list []string) {
		entries, err := os.ReadDir(dir)
		expect.OK(t, err)
		for _, e := range entries {
			if name := e.Name(); name != "ckpt" && name != "tokenizer" && !strings.HasPrefix(name, "events.out") {
				list = append(list, name)
			}
		}
		return list
	}
	if real, simulated := files("real"), files("simulated"); !slices.Equal(real, simulated) {
		t.Errorf("files %v and %v", real, simulated)
	}
	// keys are those of a file's lines by the kind of event. What is decided depends on measured costs, so
	// the kinds may differ.
	keys := func(dir, file string) map[string][]string {
		all := map[string]map[string]bool{}
		for line := range strings.Lines(read(t, dir+"/"+file)) {
			var of map[string]any
			expect.OK(t, json.Unmarshal([]byte(line), &of))
			kind := fmt.Sprint(of["kind"])
			if all[kind] == nil {
				all[kind] = map[string]bool{}
			}
			for key := range of {
				all[kind][key] = true
			}
		}
		lists := map[string][]string{}
		for kind, set := range all {
			for _, key := range []string{"steps", "time", "allocated_per_stage", "resident_per_stage", "known", "samples", "after", "throughput"} {
				if file != "costs.jsonl" || key != "steps" {
					delete(set, key)
				}
			}
			lists[kind] = slices.Sorted(maps.Keys(set))
		}
		return lists
	}
	for _, file := range []string{"metrics.jsonl", "events.jsonl", "costs.jsonl"} {
		real, simulated := keys("real", file), keys("simulated", file)
		for kind := range simulated {
			if diff := cmp.Diff(real[kind], simulated[kind]); real[kind] != nil && diff != "" {
				t.Errorf("%s, events %s: %s", file, kind, diff)
			}
		}
		if len(simulated) == 0 {
			t.Errorf("%s: no lines", file)
		}
	}
	if text := said(t, "table", "real", "simulated"); strings.Count(text, "\nsimulated ") != 2 || strings.Contains(text, "NaN") {
		t.Error(text)
	}
	said(t, "report", "simulated", "-o", "page.html")
	e := says("simulate", "run.toml", "--costs", "real/costs.jsonl", "--run-dir", "simulated")
	e.refused(t, exitUsage, "simulated", "--force")
}

// TestSimulatedRecordsHaveTheNetwork: the verdict and the replay of a run's records stand on the
// network that it was simulated on, not on that of the settings. So do they if nodes have links of
// their own.
func TestSimulatedRecordsHaveTheNetwork(t *testing.T) {
	workbench(t, "")
	write(t, "slow.toml", "ranks_per_node = 1\n[node]\nlatency_seconds = 1e-6\nbandwidth_bytes = 1e11\n[between]\nlatency_seconds = 1e-3\nbandwidth_bytes = 1e8\n")
	a := decoded[simAnswer](t, "simulate", "run.toml", "--costs", "costs.json", "--steps", "40", "--network", "slow.toml", "--run-dir", "simulated")
	r, err := report.ReadAll("simulated")
	expect.OK(t, err)
	if got := r.End.Worth.Used; math.Abs(float64(got)/a.Seconds-1) > 1e-9 {
		t.Errorf("the records take %v s, the answer %v s", got, a.Seconds)
	}
	text := said(t, "simulate", "run.toml", "--costs", "simulated/costs.jsonl")
	if !strings.Contains(text, "largest 0.00 %") {
		t.Error(text)
	}
}

// TestSimulatedRecordsSayWhatTheyAreOn: the records of a run that was simulated on estimated costs have the
// mark of the costs and the network. No reader takes them for measured.
func TestSimulatedRecordsSayWhatTheyAreOn(t *testing.T) {
	workbench(t, "")
	made := read(t, "costs.json")
	write(t, "estimated.json", strings.Replace(made, `"clock": "sim"`, `"clock": "estimated", "device": "h100"`, 1))
	write(t, "slow.toml", "ranks_per_node = 1\n[node]\nlatency_seconds = 1e-6\nbandwidth_bytes = 1e11\n[between]\nlatency_seconds = 1e-3\nbandwidth_bytes = 1e8\n")
	said(t, "simulate", "run.toml", "--costs", "estimated.json", "--dynamic", "freeze", "--steps", "40", "--every", "10", "--network", "slow.toml", "--run-dir", "dir")
	costs := read(t, "dir/costs.jsonl")
	if !strings.Contains(costs, `"clock":"estimated","device":"h100"`) || strings.Contains(costs, `"clock":"sim"`) {
		t.Errorf("the costs have lost their clock: %.300s", costs)
	}
	want := decoded[planAnswer](t, "plan", "run.toml", "--costs", "dir/costs.jsonl", "--network", "slow.toml").Step
	write(t, "dir/older.jsonl", strings.ReplaceAll(strings.ReplaceAll(costs, `"clock":"estimated"`, `"clock":"sim"`), `"simulated":true,`, ""))
	for _, file := range []string{"dir/costs.jsonl", "dir/older.jsonl"} {
		a := decoded[planAnswer](t, "plan", "dir/config.toml", "--costs", file)
		if a.Costs != "estimated for h100" || a.Network != recordedNetwork || a.Step != want {
			t.Errorf("%s: a plan on costs %q, network %q takes %v s, want %v", file, a.Costs, a.Network, a.Step, want)
		}
		text := said(t, "simulate", "dir/config.toml", "--costs", file)
		if strings.Contains(text, "really ran") || !strings.Contains(text, "\nnothing ran: a simulated run recorded the makespan (clock=sim, on costs of clock=estimated for h100)\n") || !strings.Contains(text, "largest 0.00 %") {
			t.Error(text)
		}
	}
	said(t, "report", "dir", "-o", "page.html")
	if text := said(t, "table", "dir"); strings.Contains(text, "measured") || !strings.Contains(text, ": nothing ran, simulated on costs of clock=estimated for h100\n") {
		t.Error(text)
	}
	page := read(t, "page.html")
	for text, wanted := range map[string]bool{"<th>measured<": false, "<th>simulated<": true, "nothing ran: times are simulated, on costs of clock=estimated for h100": true} {
		if strings.Contains(page, text) != wanted {
			t.Errorf("the page has %q: %v, want %v", text, !wanted, wanted)
		}
	}
}

// TestSimulateKeepsTrainedRuns: --force of simulate writes over a simulated run, never over a trained
// one with its checkpoints.
func TestSimulateKeepsTrainedRuns(t *testing.T) {
	workbench(t, "")
	if e := says("train", "run.toml", "--run-dir", "real"); e.status != exitDone {
		t.Fatal(e.stderr)
	}
	before := read(t, "real/metrics.jsonl")
	e := says("simulate", "run.toml", "--costs", "real/costs.jsonl", "--run-dir", "real", "--force")
	e.refused(t, exitUsage, "real", "train")
	if read(t, "real/metrics.jsonl") != before {
		t.Error("the run was written over")
	}
	for range 2 {
		said(t, "simulate", "run.toml", "--costs", "real/costs.jsonl", "--run-dir", "simulated", "--force")
	}
}

// TestSimulateTellsAskedPackings: a packing that --pack asks for is told as one of the settings is.
func TestSimulateTellsAskedPackings(t *testing.T) {
	workbench(t, "")
	p := decoded[simAnswer](t, "simulate", "run.toml", "--costs", "costs.json", "--steps", "60", "--pack", "20=2").Packing
	if p == nil || p.Packings != 1 || len(p.Segments) != 2 || p.Segments[1].Step != 20 || p.Segments[1].Ranks != 2 {
		t.Errorf("%+v", p)
	}
}

// TestSimulateReplays: a pruning run records a series of costs that can be simulated differently.
// The answer has the error of its predictions.
func TestSimulateReplays(t *testing.T) {
	workbench(t, "[dynamic]\nkind = \"prune\"\n[prune]\nstart = 4\nevery = 4\ntimes = 2\n[balance]\nevery = \"2\"\n")
	dir, err := os.Getwd()
	expect.OK(t, err)
	if e := alone.run(t, dir, training("--run-dir", "run")...); e.status != exitDone {
		t.Fatal(e.stderr)
	}
	args := []string{"simulate", "run.toml", "--costs", "run/costs.jsonl"}
	a := decoded[simAnswer](t, args...)
	steps, changes := 0, 0
	for _, r := range a.Replayed {
		steps += r.Steps
		if r.Measured <= 0 || r.Predicted <= 0 || r.Error != r.Predicted/r.Measured-1 {
			t.Errorf("%+v", r)
		}
	}
	for _, l := range a.Segments {
		if l.Change == "prune" {
			changes++
		}
	}
	if a.Costs != "virtual" || steps != 12 || changes != 1 { // at 8; that of step 4 prunes nothing
		t.Errorf("clock %s, %d steps that ran, %d prunings", a.Costs, steps, changes)
	}
	if text := said(t, args...); !strings.Contains(text, "\nmakespan of what really ran (clock=virtual), and as simulated (clock=sim)\n") ||
		!strings.Contains(text, "\nerror: median ") {
		t.Error(text)
	}
	more := decoded[simAnswer](t, append(sets("parallel.stages=2", "schedule.kind=zb-h1", "parallel.microbatches=8"), args...)...)
	if more.Segments[0].Stages() != 2 || more.Segments[0].Schedule != "zb-h1" || len(more.Replayed) != len(a.Replayed) || more.Replayed[0] != a.Replayed[0] {
		t.Errorf("what if: %+v, as it ran %+v", more.Replayed, a.Replayed)
	}
}

func TestDuration(t *testing.T) {
	for _, c := range []struct {
		seconds float64
		want    string
	}{
		{0, "0 s"}, {1, "1.000 s"}, {12.3456, "12.35 s"}, {123456, "123456 s"}, {0.0999999, "100.0 ms"}, {9.99951e-3, "10.00 ms"},
		{0.00012345, "123.4 µs"}, {-2e-5, "-20.00 µs"}, {3e-9, "3.000 ns"}, {3e-13, "0.000 ns"},
	} {
		if got := duration(c.seconds); got != c.want {
			t.Errorf("%v: %q, want %q", c.seconds, got, c.want)
		}
	}
}

// TestSimulateRepacksOntoNodes: ranks are counted by the network's nodes, and nodes without layers
// are given back.
func TestSimulateRepacksOntoNodes(t *testing.T) {
	workbench(t, "")
	write(t, "nodes.toml", "ranks_per_node = 2\n[node]\nlatency_seconds = 1e-6\nbandwidth_bytes = 1e11\n[between]\nlatency_seconds = 1e-5\nbandwidth_bytes = 1e10\n")
	args := []string{"simulate", "run.toml", "--costs", "costs.json", "--network", "nodes.toml", "--dynamic", "freeze", "--steps", "60", "--every", "10", "--repack", "0.3"}
	p := decoded[simAnswer](t, args...).Packing
	if p == nil || p.Packings != 2 || p.Segments[1].Ranks != 3 || p.Segments[1].Nodes != 2 || p.Segments[2].Ranks != 2 || p.Segments[2].Nodes != 1 || p.NodesIdle != 1 || !(p.HoursIdle > 0) {
		t.Errorf("%+v", p)
	}
}
