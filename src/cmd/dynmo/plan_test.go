package main

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"dynmo/src/comm/nccl"
	"dynmo/src/expect"
	"dynmo/src/lab/study"
)

func TestPlanGolden(t *testing.T) {
	workbench(t, "")
	expect.Golden(t, home+"/testdata/plan.txt", said(t, "plan", "run.toml", "--costs", "costs.json"))
}

// TestPlan: the figures of a plan agree with each other, and in both output forms.
func TestPlan(t *testing.T) {
	skipUnderShort(t)
	workbench(t, "")
	costsOf(t, "halves.json", 14)
	costsOf(t, "shards.json", 11)
	write(t, "network.toml", "ranks_per_node = 2\nslow = [1.0, 1.5]\n[node]\nlatency_seconds = 1e-6\nbandwidth_bytes = 1e10\n"+
		"[between]\nlatency_seconds = 1e-3\nbandwidth_bytes = 1e7\n")
	for _, c := range []struct {
		name   string
		args   []string
		layers int
		cuts   []int // nil: any
	}{
		{"gpipe", sets("schedule.kind=gpipe"), 8, nil},
		{"1f1b", nil, 8, nil},
		{"interleaved", sets("schedule.kind=interleaved"), 8, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{"interleaved, 3 chunks", sets("schedule.kind=interleaved", "schedule.chunks=3", "parallel.stages=2"), 8, nil},
		{"interleaved, 6 microbatches", sets("schedule.kind=interleaved", "parallel.microbatches=6"), 8, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{"zb-interleaved", sets("schedule.kind=zb-interleaved"), 8, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{"zb-h1", sets("schedule.kind=zb-h1"), 8, nil},
		{"zb-h2", sets("schedule.kind=zb-h2"), 8, nil},
		{"zb-v", sets("schedule.kind=zb-v"), 8, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		{"list", sets("schedule.kind=list"), 8, nil},
		{"auto", sets("schedule.kind=auto"), 8, nil},
		{"one in flight", sets("schedule.kind=list", "schedule.in_flight=1"), 8, nil},
		{"memory", sets("balance.memory_limit_bytes=1200000"), 8, nil},
		{"memory, auto", sets("balance.memory_limit_bytes=1200000", "schedule.kind=auto"), 8, nil},
		{"half grain", append(sets("model.grain=half"), "--costs", "halves.json"), 14, nil},
		{"head shards", append(sets("model.head_shards=4"), "--costs", "shards.json"), 11, nil},
		{"layout", sets("balance.kind=layout", "balance.layout=E|t*4|t|tL"), 8, []int{0, 1, 5, 6, 8}},
		{"uniform", sets("balance.kind=uniform"), 8, []int{0, 3, 5, 6, 8}},
		{"param", sets("balance.kind=param"), 8, nil},
		{"regex", sets("balance.kind=regex"), 8, nil},
		{"diffusion", sets("balance.kind=diffusion"), 8, nil},
		{"one stage", sets("parallel.stages=1"), 8, []int{0, 8}},
		{"network", []string{"--network", "network.toml"}, 8, nil},
		{"replicas", sets("parallel.replicas=3"), 8, nil},
		{"replicas on nodes", append(sets("parallel.replicas=2"), "--network", "network.toml"), 8, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := slices.Concat([]string{"plan", "run.toml", "--costs", "costs.json"}, c.args)
			a := decoded[planAnswer](t, args...)
			if c.cuts != nil && !slices.Equal(a.Cuts, c.cuts) {
				t.Errorf("cuts %v, want %v", a.Cuts, c.cuts)
			}
			var layers []int
			for stage, s := range a.Stages {
				layers = append(layers, s.Layers...)
				if c.name == "memory" && s.Bytes > 1200000 {
					t.Errorf("stage %d has %d bytes", stage, s.Bytes)
				}
				if s.Cap > 0 && slices.Max(s.InFlight) > s.Cap {
					t.Errorf("stage %d: %v in flight, the cap is %d", stage, s.InFlight, s.Cap)
				}
			}
			if slices.Sort(layers); len(layers) != c.layers || layers[0] != 0 || layers[len(layers)-1] != c.layers-1 {
				t.Errorf("layers %v on stages, want %d", layers, c.layers)
			}
			if sum := a.Idle.Makespan(); math.Abs(sum/a.Makespan-1) > 1e-9 || math.Abs(1-a.Idle.Busy/a.Makespan-a.Bubble) > 1e-9 {
				t.Errorf("busy and idle are %v, the makespan %v, the bubble ratio %v", sum, a.Makespan, a.Bubble)
			}
			if math.Abs((a.Makespan+a.Exposed)/a.Step-1) > 1e-9 || (a.Exposed > 0) != strings.HasPrefix(c.name, "replicas") {
				t.Errorf("a step of %v: makespan %v, exposed %v", a.Step, a.Makespan, a.Exposed)
			}
			if a.Makespan < a.Bound*(1-1e-9) || a.Bottleneck < a.Optimum || a.Clock != "sim" || a.Costs != "sim" || a.Paper != nil {
				t.Errorf("%+v", a)
			}
			text := said(t, args...)
			narrow(t, text)
			if (a.Sums != nil) != strings.HasPrefix(c.name, "replicas") || (a.Sums != nil) != strings.Contains(text, "\ngradient sums ") {
				t.Errorf("gradient sums %+v in\n%s", a.Sums, text)
			}
			for _, want := range []string{
				"\nschedule      " + a.Schedule, "\nstep          " + duration(a.Step) + "  (clock=sim, on costs of clock=sim)\n",
				"\nlower bound   " + duration(a.Bound), "\nbubble ratio  " + ratio(a.Bubble) + "\n", "inherent " + ratio(a.Idle.Inherent/a.Makespan),
				"\nbottleneck    " + duration(a.Bottleneck) + " per microbatch; optimum " + duration(a.Optimum) + "\n",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
			for _, o := range a.Orders {
				one := decoded[planAnswer](t, append(args, sets("mesh.order="+string(o.Order))...)...)
				if one.Step != o.Step || o.Stages != 2 || o.Free != 2 || o.Nodes != 4 || o.Moving <= 0 ||
					!strings.Contains(strings.Join(strings.Fields(text), " "), orderWords(o)) {
					t.Errorf("%+v, with that order alone a step of %v in\n%s", o, one.Step, text)
				}
			}
			if (len(a.Orders) == 2) != (c.name == "replicas on nodes") || len(a.Orders) == 2 && a.Orders[0].Step == a.Orders[1].Step {
				t.Errorf("orders %+v", a.Orders)
			}
			if (a.Layout == "") == strings.Contains(text, "\nlayout ") {
				t.Errorf("layout %q in\n%s", a.Layout, text)
			}
		})
	}
}

// TestPlanNeedsOfNCCL: for GPUs the plan has NCCL's memory on a rank. The network gives the ranks
// on a host; else all ranks are on one host. For CPUs, and with messages through host memory, the
// plan has no such figure.
func TestPlanNeedsOfNCCL(t *testing.T) {
	workbench(t, "")
	write(t, "pairs.toml", "ranks_per_node = 2\n[node]\nlatency_seconds = 1e-6\nbandwidth_bytes = 1e11\n[between]\nlatency_seconds = 1e-5\nbandwidth_bytes = 1e10\n")
	of := func(onHost, ctas int) *nccl.Needs {
		n := nccl.NeedsOf(4, 1, onHost, ctas)
		return &n
	}
	text, err := os.ReadFile("run.toml")
	expect.OK(t, err)
	write(t, "run.toml", strings.Replace(string(text), `clock = "virtual"`, `clock = "auto"`, 1)) // GPUs have only the wall clock
	gpu := sets("device.kind=cuda")
	for _, c := range []struct {
		name string
		args []string
		want *nccl.Needs
	}{
		{"CPUs", nil, nil},
		{"one host", gpu, of(4, 4)},
		{"two ranks on a host", slices.Concat(gpu, []string{"--network", "pairs.toml"}), of(2, 4)},
		{"fewer thread blocks", slices.Concat(gpu, sets("comm.nccl_ctas=2")), of(4, 2)},
		{"host memory", slices.Concat(gpu, sets("comm.transport=host")), nil},
	} {
		a := decoded[planAnswer](t, slices.Concat([]string{"plan", "run.toml", "--costs", "costs.json"}, c.args)...)
		if !reflect.DeepEqual(a.Nccl, c.want) {
			t.Errorf("%s: %v, want %v", c.name, a.Nccl, c.want)
		}
	}
	if text := said(t, slices.Concat([]string{"plan", "run.toml", "--costs", "costs.json"}, gpu)...); !strings.Contains(text, "\nNCCL ") {
		t.Errorf("no line about NCCL in\n%s", text)
	}
}

// TestPlanPaperBubble: the paper's ratio is reported exactly where its assumptions hold. With free
// messages and T_B = 2·T_F its equation (1) is 2(P²-2P) / (5P²-4P), which is 1/4 for 4 stages.
func TestPlanPaperBubble(t *testing.T) {
	workbench(t, "")
	layer := `{"forward":1,"backward_input":1,"backward_weight":1},`
	write(t, "equal.json", `{"clock":"sim","layers":[`+strings.Repeat(layer, 7)+strings.TrimSuffix(layer, ",")+`]}`)
	free := []string{"plan", "run.toml", "--costs", "equal.json", "--set", "comm.latency_seconds=0", "--set", "comm.bandwidth_bytes=0"}
	for _, c := range []struct {
		name  string
		args  []string
		holds bool
	}{
		{"equal stages", nil, true},
		{"other microbatches", sets("parallel.microbatches=8"), false},
		{"unequal stages", sets("balance.kind=layout", "balance.layout=E|t*4|t|tL"), false},
		{"chunks", sets("schedule.kind=zb-v"), false},
	} {
		a := decoded[planAnswer](t, append(slices.Clone(free), c.args...)...)
		if (a.Paper != nil) != c.holds {
			t.Errorf("%s: %v", c.name, a.Paper)
		}
		if a.Paper != nil && math.Abs(*a.Paper-0.25) > 1e-12 {
			t.Errorf("%s: %v, want 1/4", c.name, *a.Paper)
		}
	}
	if text := said(t, free...); !strings.Contains(text, "bubble ratio  0.429  (the paper's equation (1): 0.250)\n") { // (P-1)/(M+P-1)
		t.Error(text)
	}
}

// TestPlanCSV: plan, simulate and train read a plan's file as the planned schedule. Training with
// the file gives the same bits as training with 1F1B.
func TestPlanCSV(t *testing.T) {
	skipUnderShort(t)
	for _, kind := range []string{"list", "interleaved", "zb-v"} {
		t.Run(kind, func(t *testing.T) {
			workbench(t, "[balance]\nkind = \"uniform\"\n")
			first := decoded[planAnswer](t, append(sets("schedule.kind="+kind), "plan", "run.toml", "--costs", "costs.json", "--csv", "s.csv", "--force")...)
			file := sets("schedule.kind=file", "schedule.file=s.csv")
			again := decoded[planAnswer](t, append(file, "plan", "run.toml", "--costs", "costs.json", "--csv", "again.csv", "--force")...)
			if again.Schedule != "file" || again.Step != first.Step || !slices.Equal(again.Cuts, first.Cuts) {
				t.Errorf("%s: %v s, cuts %v; from its file %v s, cuts %v", kind, first.Step, first.Cuts, again.Step, again.Cuts)
			}
			if a, b := read(t, "s.csv"), read(t, "again.csv"); a != b {
				t.Errorf("file\n%s\nagain\n%s", a, b)
			}
			if run := decoded[simAnswer](t, append(file, "simulate", "run.toml", "--costs", "costs.json", "--steps", "1")...); run.Seconds != first.Step {
				t.Errorf("simulated in %v s, planned %v s", run.Seconds, first.Step)
			}
			dir, err := filepath.Abs(".")
			expect.OK(t, err)
			want := alone.run(t, dir, training(sets("parallel.stages=1")...)...)
			if got := alone.run(t, dir, training(file...)...); got.status != exitDone || got.stdout != want.stdout {
				t.Errorf("trains to %q, want %q: %s", got.stdout, want.stdout, got.stderr)
			}
		})
	}
}

// TestPlanOfReplicas: a step ends with the gradient sum over replicas in the plan, in the table, in
// advice and in the simulation.
func TestPlanOfReplicas(t *testing.T) {
	workbench(t, "[balance]\nkind = \"uniform\"\n")
	args := sets("parallel.replicas=4", "comm.bandwidth_bytes=1e7")
	a := decoded[planAnswer](t, append(args, "plan", "run.toml", "--costs", "costs.json")...)
	run := decoded[simAnswer](t, append(args, "simulate", "run.toml", "--costs", "costs.json", "--steps", "1")...)
	if s := run.Segments[0]; a.Exposed == 0 || a.Step != float64(s.StepSeconds) || math.Abs(a.Exposed-s.Rest()) > 1e-15 || a.Makespan != float64(s.Makespan) {
		t.Errorf("planned %v s, exposed %v, makespan %v; simulated %v, %v, %v", a.Step, a.Exposed, a.Makespan, s.StepSeconds, s.Rest(), s.Makespan)
	}
	for _, advice := range a.Advice {
		if advice.MadeUp {
			continue
		}
		taken := decoded[planAnswer](t, append(args, append(sets(advice.Sets...), "plan", "run.toml", "--costs", "costs.json")...)...)
		if taken.Step != advice.Step || taken.Exposed == 0 {
			t.Errorf("%v takes %v s, %v exposed, promised %v", advice.Sets, taken.Step, taken.Exposed, advice.Step)
		}
	}
}

// TestPlanAdvisesWithout: advice names the settings of --set that it leaves without effect, because
// plan refuses such settings.
func TestPlanAdvisesWithout(t *testing.T) {
	workbench(t, "")
	args := append(sets("schedule.kind=list"), "plan", "run.toml", "--costs", "costs.json")
	cap := sets("schedule.in_flight=1")
	a := decoded[planAnswer](t, append(args, cap...)...)
	refused := 0
	for _, advice := range a.Advice {
		if advice.MadeUp || !slices.Equal(advice.Without, []string{"schedule.in_flight"}) {
			continue
		}
		refused++
		says(slices.Concat(args, cap, sets(advice.Sets...))...).refused(t, exitUsage, "--set schedule.in_flight: has no effect")
		if taken := decoded[planAnswer](t, append(args, sets(advice.Sets...)...)...); taken.Step != advice.Step {
			t.Errorf("%v takes %v s, promised %v", advice.Sets, taken.Step, advice.Step)
		}
		if !strings.Contains(adviceWords(advice), ", without --set schedule.in_flight: ") {
			t.Error(advice)
		}
	}
	if refused == 0 {
		t.Errorf("%+v", a.Advice)
	}
}

// TestPlanAdvises: plan accepts the settings of its advice, and its answer then keeps the promise.
// Without advice the plan says so.
func TestPlanAdvises(t *testing.T) {
	workbench(t, "")
	args := append(sets("schedule.kind=gpipe"), "plan", "run.toml", "--costs", "costs.json")
	a := decoded[planAnswer](t, args...)
	if len(a.Advice) == 0 || a.Advice[0].MadeUp || a.Advice[0].Faster <= 0 {
		t.Fatalf("%+v", a.Advice)
	}
	best := a.Advice[0]
	taken := decoded[planAnswer](t, append(args, sets(best.Sets...)...)...)
	if taken.Step != best.Step || best.Step >= a.Step {
		t.Errorf("%v takes %v s, promised %v s, now %v s", best.Sets, taken.Step, best.Step, a.Step)
	}
	if text := said(t, args...); !strings.Contains(text, "\nadvice        "+adviceWords(best)+"\n") {
		t.Errorf("no %q in\n%s", adviceWords(best), text)
	}
	if text := said(t, append(args, sets("schedule.kind=1f1b", "parallel.stages=1")...)...); !strings.HasSuffix(text, "\nadvice        nothing found: no other schedule, balancer or finer layers are faster or need less\n              memory\n") {
		t.Error(text)
	}
	for _, c := range []struct {
		advice study.Advice
		want   string
	}{
		{study.Advice{Sets: []string{"schedule.kind=zb-v"}, Faster: 0.046, Less: 0.47}, "--set schedule.kind=zb-v: 4.6 % faster, 47 % less memory"},
		{study.Advice{Sets: []string{"a=1", "b=2"}, Faster: -0.12, Less: 0.0049}, "--set a=1 --set b=2: 12 % slower, as much memory"},
		{study.Advice{Sets: []string{"a=1"}, Faster: 0.004, Less: -0.0996}, "--set a=1: as fast, 10 % more memory"},
	} {
		if got := adviceWords(c.advice); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
