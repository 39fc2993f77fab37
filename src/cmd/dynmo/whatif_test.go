package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/lab/study"
	"dynmo/src/plan/search"
	"dynmo/src/record"
)

// says runs dynmo in this process.
func says(args ...string) ended {
	var stdout, stderr bytes.Buffer
	status := execute(rootCommand(), args, &stdout, &stderr)
	return ended{status: status, stdout: stdout.String(), stderr: stderr.String()}
}

// skipUnderShort skips a test of a command without kernels or MPI under -short. The test runs in
// the pass with build tags, or where there is no such pass.
func skipUnderShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs in the pass with tags")
	}
}

// said runs a command that must succeed without complaints, and returns its output.
func said(t *testing.T, args ...string) string {
	t.Helper()
	e := says(args...)
	if e.status != exitDone || e.stderr != "" {
		t.Fatalf("%v: status %d: %s", args, e.status, e.stderr)
	}
	return e.stdout
}

// decoded returns the JSON answer of a command.
func decoded[T any](t *testing.T, args ...string) (answer T) {
	t.Helper()
	in := json.NewDecoder(strings.NewReader(said(t, append(args, "--json")...)))
	in.DisallowUnknownFields()
	if err := in.Decode(&answer); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return answer
}

// decodedLines returns the JSON values of a text with one value on each line.
func decodedLines[T any](t *testing.T, text string) []T {
	t.Helper()
	var list []T
	for line := range strings.Lines(text) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, v)
	}
	return list
}

// home is the folder of this package. Tests change to other folders.
var home, _ = os.Getwd()

// workbench changes to a new folder. It has settings (run.toml, with `more` appended) and the costs
// of their 8 layers (costs.json).
func workbench(t *testing.T, more string) {
	t.Helper()
	dir := folder(t, more)
	costs, err := os.ReadFile(filepath.Join(home, "testdata", "costs.json"))
	expect.OK(t, err)
	if _, err := build(); err != nil { // built in the module's folder
		t.Fatal(err)
	}
	t.Chdir(dir)
	write(t, "costs.json", string(costs))
}

// write makes a file.
func write(t *testing.T, name, text string) {
	t.Helper()
	expect.OK(t, os.WriteFile(name, []byte(text), 0o600))
}

// costsOf writes a table of layers with costs that grow along the chain.
func costsOf(t *testing.T, name string, layers int) {
	t.Helper()
	table := cost.Table{Clock: "sim"}
	for l := range layers {
		seconds := 1e-3 * float64(1+l)
		table.Layers = append(table.Layers, cost.Layer{
			Name: fmt.Sprintf("layer%d", l), Forward: seconds, BackwardInput: seconds, BackwardWeight: seconds, Output: 1000,
		})
	}
	text, err := json.Marshal(table)
	expect.OK(t, err)
	write(t, name, string(text))
}

// TestWhatIfRefusesCosts: plan and simulate refuse files that are not costs.
func TestWhatIfRefusesCosts(t *testing.T) {
	workbench(t, "")
	costsOf(t, "nine.json", 9)
	good := read(t, "costs.json")
	change := func(name, old, new string) {
		text := strings.Replace(good, old, new, 1)
		if text == good {
			t.Fatalf("%s: no %q in costs.json", name, old)
		}
		write(t, name, text)
	}
	change("negative.json", `"forward": 0.0002`, `"forward": -0.0002`)
	change("nan.json", `"forward": 0.0002`, `"forward": NaN`)
	change("missing.json", `"backward_weight": 0.0003, `, ``)
	change("slow.json", `"clock"`, `"slow": [1, 2], "clock"`)
	change("standing.json", `"clock"`, `"slow": [1, 0, 1, 1], "clock"`)
	change("fixed.json", `"clock"`, `"fixed": [0, 0, 0, -1], "clock"`)
	change("clockless.json", `"clock": "sim", `, ``)
	change("half.json", "\n]}", "")
	write(t, "empty.json", "")
	write(t, "free.json", `{"clock": "sim", "layers": [`+strings.Repeat(`{"forward":0,"backward_input":0,"backward_weight":0},`, 7)+
		`{"forward":0,"backward_input":0,"backward_weight":0}]}`)
	write(t, "gap.json", strings.Replace(read(t, "costs.json"), `"clock"`, `"steps": 3, "clock"`, 1)+strings.Replace(good, `"clock"`, `"step": 4, "clock"`, 1))
	for _, c := range []struct{ file, want string }{
		{"negative.json", "table 0: layers[0].forward: -0.0002, want a finite number >= 0"},
		{"nan.json", "table 0: invalid character 'N'"},
		{"missing.json", `table 0: layer "embedding": backward_weight is missing`},
		{"nine.json", "table 0: layers: 9, want 8: for new costs run dynmo profile run.toml -o FILE"},
		{"empty.json", "no cost table"},
		{"absent.json", "no such file"},
		{"half.json", "table 0: unexpected EOF"},
		{"slow.json", "table 0: slow: 2 numbers, want one for each of the 4 stages"},
		{"standing.json", "table 0: slow[1]: 0, want a finite number > 0"},
		{"fixed.json", "table 0: fixed[3]: -1, want a finite number >= 0"},
		{"clockless.json", `table 0: clock: "", want wall, virtual, sim or estimated`},
		{"free.json", "table 0: layers: no layer takes any time"},
		{"gap.json", "table 1: step: 4, want 3"},
	} {
		for _, command := range []string{"plan", "simulate"} {
			t.Run(command+" "+c.file, func(t *testing.T) {
				says(command, "run.toml", "--costs", c.file).refused(t, exitUsage, "--costs: ", c.file+": ", c.want)
			})
		}
	}
}

// TestWhatIfRefuses: plan, simulate and profile refuse wrong settings and files. After a refusal
// there is no output file.
func TestWhatIfRefuses(t *testing.T) {
	workbench(t, "")
	write(t, "deadlock.csv", "0F0,0I0,0F1,0I1,0W0,0W1\n1F1,1I1,1F0,1I0,1W0,1W1\n")
	write(t, "forgets.csv", "0F0,0B0,0F1,0B1\n1F0,1B0\n")
	write(t, "unfinished.csv", "0F0,0B0,0F1,0B1\n1F0,1B0,1F1\n")
	write(t, "good.csv", "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n")
	write(t, "zero.toml", "[node]\nlatency_seconds = 1e-6\nbandwidth_bytes = 0\n")
	write(t, "unknown.toml", "[node]\nlatency_seconds = 1e-6\nbandwidth_bytes = 1e9\nlatency = 3\n")
	file := func(name string, more ...string) []string {
		return append(sets("schedule.kind=file", "schedule.file="+name, "parallel.stages=2"), more...)
	}
	two := sets("parallel.microbatches=2")
	layout := func(text string) []string { return sets("balance.kind=layout", "balance.layout="+text) }
	type refusal struct {
		name   string
		args   []string
		status int
		want   []string
	}
	check := func(command string, base []string, list []refusal) {
		for _, c := range list {
			t.Run(command+" "+c.name, func(t *testing.T) {
				before, _ := filepath.Glob("*")
				says(append(append([]string{command, "run.toml"}, base...), c.args...)...).refused(t, c.status, c.want...)
				if after, _ := filepath.Glob("*"); len(after) != len(before) {
					t.Errorf("files %v, before %v", after, before)
				}
			})
		}
	}
	for command, base := range map[string][]string{
		"plan":     {"--costs", "costs.json", "--csv", "new.csv"},
		"simulate": {"--costs", "costs.json", "--trace", "new.json"},
	} {
		check(command, base, []refusal{
			{"deadlock", file("deadlock.csv", two...), exitUsage, []string{"schedule.file: deadlock.csv: ", "stage 0: instruction 1, I0: deadlock"}},
			{"forgotten microbatch", file("forgets.csv", two...), exitUsage, []string{"forgets.csv: ", "stage 1: ", "F1 is missing"}},
			{"unfinished microbatch", file("unfinished.csv", two...), exitUsage, []string{"unfinished.csv: ", "stage 1: microbatch 1 is not finished"}},
			{"schedule for other microbatches", file("good.csv"), exitUsage, []string{"good.csv is for 2 stages and 2 microbatches", "parallel.microbatches = 4"}},
			{"schedule for other stages", file("good.csv", append(two, sets("parallel.stages=4")...)...), exitUsage, []string{"good.csv is for 2 stages", "parallel.stages = 4"}},
			{"no schedule file", file("absent.csv"), exitUsage, []string{"schedule.file: ", "absent.csv", "no such file"}},
			{"layout symbol", layout("Et|x|tt|ttL"), exitUsage, []string{"balance.layout: position 4: 'x'"}},
			{"layout stages", layout("Et*6|L"), exitUsage, []string{"balance.layout: 2 stages, want 4"}},
			{"layout blocks", layout("Et*7|L"), exitUsage, []string{"balance.layout: position 2: ", "6 blocks"}},
			{"zero bandwidth", []string{"--network", "zero.toml"}, exitUsage, []string{"--network: zero.toml: node.bandwidth_bytes: 0, wanted a number from 1000 to 1e+15"}},
			{"unknown network key", []string{"--network", "unknown.toml"}, exitUsage, []string{"--network: unknown.toml:4: node.latency: unknown"}},
			{"no network file", []string{"--network", "absent.toml"}, exitUsage, []string{"--network: ", "absent.toml", "no such file"}},
			{"too few layers", sets("schedule.kind=interleaved", "schedule.chunks=3"), exitUsage, []string{"parallel.stages = 4", "8 layers"}},
			{"a layer fits nowhere", sets("balance.memory_limit_bytes=1000"), exitUsage, []string{"balance.memory_limit_bytes = 1000: memory: layer 0", "bytes are missing"}},
			{"layers fit in no way", sets("balance.memory_limit_bytes=600000"), exitUsage, []string{"balance.memory_limit_bytes = 600000: memory: ", "lacks", "; wanted at least "}},
			{"chunks fit in no way", sets("balance.memory_limit_bytes=500000", "schedule.kind=zb-v"), exitUsage, []string{"balance.memory_limit_bytes = 500000: ", "memory: "}},
			{"uniform does not fit", sets("balance.memory_limit_bytes=600000", "balance.kind=uniform"), exitUsage, []string{"balance.memory_limit_bytes = 600000: memory: stage 0 lacks"}},
			{"standard input twice", []string{"--network", "-", "--costs", "-"}, exitUsage, []string{"-: standard input can be one file"}},
			{"unknown setting", sets("parallel.stage=2"), exitUsage, []string{"parallel.stage", "nearest is parallel.stages"}},
		})
	}
	check("plan", []string{"--costs", "costs.json"}, []refusal{
		{"no such step", []string{"--step", "3"}, exitUsage, []string{"--step 3: costs are of the steps 0 to 0"}},
		{"step below -1", []string{"--step", "-2"}, exitUsage, []string{"--step -2: "}},
		{"no folder", []string{"--csv", "no/s.csv"}, exitFailure, []string{"--csv: ", "no/s.csv", "no such file"}},
	})
	shape := func(name, text string) {
		write(t, name, strings.Replace(read(t, "costs.json"), `"clock"`, `"model":"`+text+`","clock"`, 1))
	}
	settings, err := config.Load("run.toml", nil)
	expect.OK(t, err)
	shape("same.json", search.Shape(settings))
	shape("older.json", strings.TrimSuffix(search.Shape(settings), " parallel.microbatch_size=2"))
	for _, command := range []string{"plan", "simulate"} {
		said(t, command, "run.toml", "--costs", "same.json")
		check(command, []string{"--costs", "same.json"}, []refusal{
			{"costs of another width", sets("model.hidden=64", "model.heads=8"), exitUsage, []string{"--costs: same.json: table 0: model: the costs hold for model.hidden=32, CONFIG says model.hidden=64: for new costs run dynmo profile "}},
			{"costs of another microbatch", sets("parallel.microbatch_size=3"), exitUsage, []string{"the costs hold for parallel.microbatch_size=2, CONFIG says parallel.microbatch_size=3"}},
			{"costs of a longer sequence", sets("model.sequence=8"), exitUsage, []string{"the costs hold for model.sequence=", "CONFIG says model.sequence=8"}},
			{"costs that say less", []string{"--costs", "older.json"}, exitUsage, []string{"--costs: older.json: table 0: model: the costs hold for \"model.blocks="}},
		})
	}
	ran := strings.Replace(read(t, "costs.json"), `"clock"`,
		`"run":{"layout":{"cuts":[0,2,4,6,8],"schedule":"file","stages":4,"replicas":1,"microbatches":4},"makespan":1},"clock"`, 1)
	write(t, "ran.json", ran)
	write(t, "steps.json", strings.Replace(read(t, "costs.json"), `"clock"`, `"steps": 3, "clock"`, 1))
	write(t, "odd.json", strings.Replace(ran, `"file"`, `"2f2b"`, 1))
	check("simulate", []string{"--costs", "costs.json"}, []refusal{
		{"a schedule that is gone", []string{"--costs", "ran.json"}, exitUsage, []string{"table 0: ", `schedule "file"`}},
		{"a schedule that is none", []string{"--costs", "odd.json"}, exitUsage, []string{"table 0: ", `schedule "2f2b"`}},
		{"unknown dynamism", []string{"--dynamic", "prone"}, exitUsage, []string{`--dynamic: dynamism "prone"`, study.Dynamisms()}},
		{"no steps", []string{"--dynamic", "prune", "--steps", "0"}, exitUsage, []string{"--dynamic: steps: 0"}},
		{"steps of a run", []string{"--costs", "steps.json", "--steps", "5"}, exitUsage, []string{"--steps: has no effect", "--dynamic"}},
		{"no steps of nothing", []string{"--steps", "0"}, exitUsage, []string{"--steps 0: want at least 1"}},
		{"steps without end", []string{"--steps", "2000000"}, exitUsage, []string{"--steps 2000000: want at most 1000000"}},
		{"changes of nothing", []string{"--every", "5"}, exitUsage, []string{"--every: has no effect", "--dynamic"}},
		{"a trace of all", []string{"--dynamic", "all", "--trace", "t.json"}, exitUsage, []string{"--trace, --run-dir: --dynamic all has several runs"}},
		{"repack all", []string{"--repack", "1"}, exitUsage, []string{"--repack 1: want a share of at least 0 and below 1"}},
		{"repack NaN", []string{"--repack", "NaN"}, exitUsage, []string{"--repack NaN: want"}},
		{"no folder", []string{"--trace", "no/t.json"}, exitFailure, []string{"--trace: ", "no/t.json", "no such file"}},
	})
	check("profile", nil, []refusal{
		{"no output", nil, exitUsage, []string{`required flag(s) "output" not set`}},
		{"no folder", []string{"-o", "no/costs.json"}, exitFailure, []string{"--output: open no/costs.json: no such file"}},
		{"no steps", []string{"-o", "new.json", "--steps", "9223372036854775807"}, exitUsage, []string{"--steps 9223372036854775807: want 1 to 1000000"}},
		{"no corpus", append(sets("data.path=absent.txt"), "-o", "new.json"), exitUsage, []string{`data.path = "absent.txt"`, "no such file"}},
	})
}

// fed makes a text the standard input until the test ends.
func fed(t *testing.T, text string) {
	t.Helper()
	write(t, "stdin", text)
	f, err := os.Open("stdin")
	expect.OK(t, err)
	own := os.Stdin
	os.Stdin = f
	t.Cleanup(func() { os.Stdin = own; f.Close() })
}

// TestStandardInputAndOutput: every file may be read from standard input, and a single one may be
// written to standard output.
func TestStandardInputAndOutput(t *testing.T) {
	workbench(t, "")
	write(t, "network.toml", "[node]\nlatency_seconds = 1e-6\nbandwidth_bytes = 1e9\n")
	write(t, "loads.json", `{"seconds": [1, 2]}`)
	for _, c := range []struct{ file, args string }{
		{"run.toml", "plan FILE --costs costs.json"},
		{"costs.json", "plan run.toml --costs FILE"},
		{"network.toml", "simulate run.toml --costs costs.json --network FILE"},
		{"run.toml", "simulate FILE --costs costs.json"},
		{"costs.json", "simulate run.toml --costs FILE"},
		{"loads.json", "balance --loads FILE --stages 2"},
	} {
		args := func(name string) []string { return strings.Fields(strings.ReplaceAll(c.args, "FILE", name)) }
		cut := func(text string) string { before, _, _ := strings.Cut(text, "decided in"); return before }
		want := cut(said(t, args(c.file)...))
		fed(t, read(t, c.file))
		if got := cut(said(t, args("-")...)); got != want {
			t.Errorf("%s from standard input: %s\nwant %s", c.args, got, want)
		}
	}
	for _, c := range []struct{ command, flag, file string }{{"plan", "--csv", "s.csv"}, {"simulate", "--trace", "t.json"}} {
		said(t, c.command, "run.toml", "--costs", "costs.json", c.flag, c.file)
		if got := said(t, c.command, "run.toml", "--costs", "costs.json", c.flag, "-"); got != read(t, c.file) {
			t.Errorf("%s %s -: %.200s", c.command, c.flag, got)
		}
	}
	dir := recorded(t, record.Metrics{Clock: "wall", Loss: 5.5, StepSeconds: 1})
	if page := said(t, "report", dir, "-o", "-"); !strings.HasPrefix(page, "<!doctype html>") {
		t.Errorf("%.100s", page)
	}
	if _, err := os.Stat("-"); err == nil {
		t.Error(`a file is called "-"`)
	}
}
