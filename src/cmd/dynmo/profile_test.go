package main

import (
	"os"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/record"
)

// TestProfile: the output of profile is a table of the whole chain for plan and simulate, for any
// stages, schedule and dynamism in the settings.
func TestProfile(t *testing.T) {
	for _, c := range []struct {
		name   string
		args   []string
		output string
		layers string // names
	}{
		{"blocks", sets("parallel.stages=4", "schedule.kind=zb-v"), "new.json",
			"embedding block.0 block.1 block.2 block.3 block.4 block.5 head"},
		{"halves", sets("model.grain=half", "model.blocks=2", "parallel.stages=3", "parallel.replicas=2"), "new.json",
			"embedding block.0.attention block.0.mlp block.1.attention block.1.mlp head"},
		{"alike ones once", sets("dynamic.kind=mod+exit", "mod.route=predictor"), "--once new.json",
			"embedding block.0 block.1 exit.0 block.2 exit.1 block.3 block.4 exit.2 block.5 head"},
		{"head in slices", sets("model.head_shards=2", "model.blocks=1", "parallel.stages=1"), stdout, "embedding block.0 head.0 head.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			workbench(t, "[dynamic]\nkind = \"prune\"\n[prune]\nstart = 0\n") // training would prune at once
			output, once := strings.CutPrefix(c.output, "--once ")
			flags := []string{"profile", "run.toml", "-o", output, "--steps", "1"}
			if once {
				flags = append(flags, "--once")
			}
			if out := said(t, append(c.args, flags...)...); c.output == stdout {
				write(t, "new.json", out)
			} else if out != "" {
				t.Errorf("says %q", out)
			}
			f, err := os.Open("new.json")
			expect.OK(t, err)
			defer f.Close()
			series, err := record.ReadSeries("new.json", f, 0)
			expect.OK(t, err)
			var names []string
			for _, l := range series[0].Layers {
				names = append(names, l.Name)
				if l.Forward <= 0 || l.BackwardWeight <= 0 || l.NonZeros <= 0 || l.Bytes.Parameters <= 0 {
					t.Errorf("%+v", l)
				}
			}
			if got := strings.Join(names, " "); got != c.layers || len(series) != 1 || !strings.HasPrefix(series[0].Model, "model.blocks=") || series[0].Clock != "virtual" || series[0].Run != nil {
				t.Errorf("%d tables of clock %s, layers %s", len(series), series[0].Clock, got)
			}
			for _, command := range []string{"plan", "simulate"} {
				if out := said(t, append(c.args, command, "run.toml", "--costs", "new.json")...); !strings.Contains(out, "clock=virtual") {
					t.Errorf("%s: no clock in\n%s", command, out)
				}
			}
		})
	}
}

// TestProfileEstimates: a table for an absent GPU says that it is estimated. So do a plan and a
// simulation of it. Flags without effect are refused.
func TestProfileEstimates(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "run.toml", "[model]\nblocks = 6\nhidden = 32\nheads = 2\nsequence = 16\nvocab = 256\n[parallel]\nstages = 2\n[device]\nkind = \"cuda\"\n")
	write(t, "h100.json", said(t, "profile", "run.toml", "--estimate", "h100", "-o", "-"))
	for _, command := range [][]string{{"plan"}, {"simulate"}, {"simulate", "--dynamic", "all"}} {
		out := said(t, append(command, "run.toml", "--costs", "h100.json")...)
		if !strings.Contains(strings.Join(strings.Fields(out), " "), "on costs of clock=estimated for h100") {
			t.Errorf("%v does not say that costs are estimated:\n%s", command, out)
		}
	}
	for _, c := range []struct {
		args    []string
		network string // assumed network in the answer
	}{
		{nil, "h100"},
		{sets("comm.delay_most=2"), "h100"},
		{[]string{"--network", "a100"}, ""},
		{sets("comm.bandwidth_bytes=1e9"), ""},
	} {
		args := append([]string{"run.toml", "--costs", "h100.json"}, c.args...)
		a := decoded[planAnswer](t, append([]string{"plan"}, args...)...)
		s := decoded[simAnswer](t, append([]string{"simulate"}, args...)...)
		if a.Network != c.network || s.Network != c.network {
			t.Errorf("%v: networks %q and %q, want %q", c.args, a.Network, s.Network, c.network)
		}
		if text := said(t, append([]string{"plan"}, args...)...); strings.Contains(text, "\nnetwork       nodes of h100 GPUs, assumed") != (c.network != "") {
			t.Error(text)
		}
	}
	for want, args := range map[string][]string{
		`--estimate: no rates of a GPU "b200": want one of a100, h100`:     {"--estimate", "b200"},
		`--estimate: device.kind = "cpu", want "cuda"`:                     {"--estimate", "h100", "--set", "device.kind=cpu"},
		"--once: has no effect beside --estimate, which measures nothing":  {"--estimate", "h100", "--once"},
		"--steps: has no effect beside --estimate, which measures nothing": {"--estimate", "h100", "--steps", "2"},
	} {
		says(append([]string{"profile", "run.toml", "-o", "new.json"}, args...)...).refused(t, exitUsage, want)
	}
}

// TestProfileRefusesRanks: every rank finds the error, and it is reported once.
func TestProfileRefusesRanks(t *testing.T) {
	pair := world{2}
	pair.need(t)
	pair.run(t, folder(t, ""), "profile", "run.toml", "-o", "new.json").refused(t, exitUsage, "profile measures one rank")
}

// TestProfileRefusesExperts: measuring fewer experts needs a mixture, in one block. At least as
// many experts are measured as a token goes to.
func TestProfileRefusesExperts(t *testing.T) {
	t.Chdir(folder(t, ""))
	moe := sets("model.family=llama", "dynamic.kind=moe")
	for want, args := range map[string][]string{
		"--experts: has no effect, want --once beside it":                   append(moe, "--experts", "2"),
		"--once: 3 experts: config: parallel.replicas = 2, moe.experts = 3": append(moe, "--once", "--experts", "3", "--set", "parallel.experts=spread", "--set", "parallel.replicas=2"),
		"--once: 1 experts: want dynamic.kind with moe":                     append(moe, "--once", "--experts", "1"),
		"--once: 2 experts: want dynamic.kind with moe":                     {"--once", "--experts", "2"},
	} {
		says(append([]string{"profile", "run.toml", "-o", "new.json"}, args...)...).refused(t, exitUsage, want)
	}
}
