package main

import (
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/lab/study"
)

// TestSimulateSettingsAct: every setting of simulated runs changes the answer of its kind, and the
// answer names it. Of prune's settings only accepted ones are checked.
func TestSimulateSettingsAct(t *testing.T) {
	workbench(t, "")
	changes := map[string]struct{ kind, value string }{
		"simulate.head": {"moe", "3"}, "simulate.attention": {"prune", "0.5"}, "simulate.routing": {"moe", `"llama-32-aux"`},
		"simulate.expert_ranks": {"moe", "4"}, "simulate.expert_spare": {"moe", "1"}, "simulate.experts": {"moe", "32"}, "simulate.density_least": {"attention", "0.12"}, "simulate.density_most": {"attention", "0.2"},
		"simulate.density_noise": {"attention", "1"}, "simulate.exit_from": {"exit", "0.6"}, "simulate.exit_share": {"exit", "0.3"},
		"simulate.exit_noise": {"exit", "0.5"}, "simulate.thaws": {"freeze", "false"},
		"simulate.frozen": {"freeze", "0.3"}, "simulate.mod_tokens": {"mod", "0.9"}, "simulate.mod_noise": {"mod", "2"},
		"simulate.measure_times": {"moe", "100"}, "simulate.decide_times": {"moe", "1000"}, "simulate.move_delay_most": {"moe", "9"},
		"prune.times": {"prune", "2"}, "prune.initial": {"prune", "0.8"}, "prune.final": {"prune", "0.95"}, "prune.csr_from": {"prune", "0.3"},
		"prune.start": {"prune", "1"}, "prune.every": {"prune", "1"}, "prune.select": {"prune", "gather"},
		"prune.structure": {"prune", `"2:4"`}, "prune.crossing": {"prune", "spmm.json"},
	}
	standard := map[string]simAnswer{}
	for _, key := range append(config.Complete("simulate."), config.Complete("prune.")...) {
		name := strings.TrimSuffix(key.Text, "=")
		c, ok := changes[name]
		if !ok {
			t.Errorf("%s: not tried", name)
			continue
		}
		args := []string{"simulate", "run.toml", "--costs", "costs.json", "--dynamic", c.kind, "--steps", "60", "--every", "10"}
		if name == "prune.start" || name == "prune.every" || name == "prune.select" || name == "prune.crossing" {
			says(append(args, "--set", name+"="+c.value)...).refused(t, exitUsage, "--set "+name+": has no effect on simulate")
			continue
		}
		like := c.kind
		if name == "simulate.experts" { // recordings have a fixed number of experts
			args, like = append(args, "--set", `simulate.routing="zipf-1"`), "zipf-1"
		}
		if name == "simulate.expert_spare" { // copies are of replicas' experts
			args, like = append(args, "--set", "parallel.replicas=8", "--set", `simulate.routing="hot-rank"`), "replicas"
		}
		if _, ok := standard[like]; !ok {
			standard[like] = decoded[simAnswer](t, args...)
		}
		a := decoded[simAnswer](t, append(args, "--set", name+"="+c.value)...)
		if a.Seconds == standard[like].Seconds {
			t.Errorf("%s = %s: %v s, as without", name, c.value, a.Seconds)
		}
		if !strings.Contains(strings.Join(a.Assumes, " "), name+"="+c.value) {
			t.Errorf("%s = %s: the answer assumes %v", name, c.value, a.Assumes)
		}
	}
}

// TestSmallHead: a head that is already smaller than a small one stays unchanged, and the answer
// says so.
func TestSmallHead(t *testing.T) {
	workbench(t, "")
	for head, want := range map[string]float64{"1": study.SmallHead, "0.01": 0.01} {
		a := decoded[simAnswer](t, "simulate", "run.toml", "--costs", "costs.json", "--steps", "50", "--set", "simulate.head="+head)
		if s := a.Head.Small; s == nil || s.Times != want || head == "0.01" && s.Speedup != a.Better.Speedup {
			t.Errorf("head %s: %+v, want %v times its seconds; speedup %v", head, s, want, a.Better.Speedup)
		}
	}
}

// TestNoKindTwice: a kind that is part of the costs is not applied again.
func TestNoKindTwice(t *testing.T) {
	workbench(t, "[dynamic]\nkind = \"prune+mod\"\n")
	for kind, want := range map[string]string{"mod": "--dynamic mod: the costs are of a model with dynamic.kind = \"prune+mod\" already, want those of one without", "prune": ""} {
		e := alone.run(t, ".", "simulate", "run.toml", "--costs", "costs.json", "--dynamic", kind, "--steps", "20")
		if done := e.status == exitDone; done != (want == "") || !strings.Contains(e.stderr, want) {
			t.Errorf("%s: status %d, %s", kind, e.status, e.stderr)
		}
	}
}

// TestWhatIfRefusesIdleSets: settings without effect are refused by name.
func TestWhatIfRefusesIdleSets(t *testing.T) {
	workbench(t, "")
	write(t, "network.toml", "[node]\nlatency_seconds = 1e-6\nbandwidth_bytes = 1e9\n")
	for _, c := range []struct{ args, want string }{
		{"simulate --set prune.final=0.5", "--set prune.final: has no effect without --dynamic prune"},
		{"simulate --dynamic moe --set prune.final=0.5", "--set prune.final: has no effect without --dynamic prune"},
		{"simulate --set dynamic.kind=prune", "--set dynamic.kind: has no effect on simulate, only train looks at it; wanted --dynamic"},
		{"simulate --set train.steps=5", "wanted --steps"},
		{"simulate --set run.trace_steps=5", "--set run.trace_steps: has no effect on this answer of simulate"},
		{"simulate --network network.toml --set comm.latency_seconds=1e-3", "--set comm.latency_seconds: has no effect beside --network: set latency_seconds of [node] and [between] in network.toml"},
		{"plan --network network.toml --set comm.delay_most=2", "--set comm.delay_most: has no effect beside --network: set most of [delay] in network.toml"},
		{"simulate --sample 4", "--sample: has no effect, want --dynamic beside it"},
		{"simulate --dynamic moe --sample -1", "--sample -1: want at least 0"},
		{"simulate --set balance.kind=uniform --set simulate.measure_times=2", "--set simulate.measure_times: has no effect while balance.kind = \"uniform\""},
		{"simulate --set balance.kind=param --set simulate.decide_times=2", "--set simulate.decide_times: has no effect while balance.kind = \"param\""},
		{"simulate --set schedule.kind=zb-v --set balance.kind=param --set simulate.move_delay_most=2", "--set simulate.move_delay_most: has no effect while balance.kind = \"param\""},
		{"simulate --pack 20=0", "--pack 20=0: want STEP=STAGES"},
		{"simulate --pack 20=5", "--pack 20=5: want STEP=STAGES, a step of at least 1 and 1 to 4 stages"},
		{"simulate --pack x=2", "--pack x=2: want STEP=STAGES"},
		{"simulate --pack 5000=2", "--pack 5000=2: want a step from 1 to 999, of the run but its first"},
		{"simulate --pack 20=2 --set balance.kind=param", "balance.kind = param never moves layers"},
		{"simulate --repack 0.1 --set balance.kind=param", "balance.kind = param never moves layers"},
		{"simulate --set repack.kind=first-fit", "a limit or more than one stage"},
		{"plan --set simulate.head=0.5", "--set simulate.head: has no effect on plan, only simulate looks at it"},
		{"plan --set balance.every=5", "--set balance.every: has no effect on this answer of plan"},
	} {
		args := strings.Fields(c.args)
		says(append([]string{args[0], "run.toml", "--costs", "costs.json"}, args[1:]...)...).refused(t, exitUsage, c.want)
	}
}

// TestSimulateSamples: a run of many changes reports which changes are simulated. Its result is
// close to the simulation of all changes.
func TestSimulateSamples(t *testing.T) {
	workbench(t, "")
	args := []string{"simulate", "run.toml", "--costs", "costs.json", "--dynamic", "moe", "--steps", "600"}
	a, all := decoded[simAnswer](t, args...), decoded[simAnswer](t, append(args, "--sample", "1")...)
	if s := a.Sampled; s == nil || s.From != 40 || s.Interval != 2 || !(s.Error > 0 && s.Error < 0.01) || all.Sampled != nil {
		t.Errorf("sampled %+v, and %+v where all was asked for", a.Sampled, all.Sampled)
	}
	if x := a.Seconds / all.Seconds; x < 0.99 || x > 1.01 || a.Steps != 600 {
		t.Errorf("%d steps take %v times those of the whole run", a.Steps, x)
	}
	if text := said(t, args...); !strings.Contains(text, "\nsampled       from step 40 on one change in 2 was simulated, ") {
		t.Error(text)
	}
}
