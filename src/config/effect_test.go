package config

import (
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// TestCheckSets: every --set acts on what a command answers, or is refused by name.
func TestCheckSets(t *testing.T) {
	all := []string{"prune", "freeze", "moe", "attention", "exit", "mod"}
	for _, c := range []struct {
		name, command string
		sets, kinds   []string
		want          string // "": accepted
	}{
		{"acts", "simulate", []string{"parallel.stages=2", "comm.latency_seconds=1e-6", "model.blocks=4", "simulate.head=0.02"}, []string{"none"}, ""},
		{"acts on the kind", "simulate", []string{"prune.final=0.5", "prune.csr_from=0.6", "simulate.attention=0.3"}, []string{"prune"}, ""},
		{"acts on one of all", "simulate", []string{"prune.final=0.5", "simulate.expert_ranks=4", "simulate.frozen=0.5"}, all, ""},
		{"another kind", "simulate", []string{"prune.final=0.5"}, []string{"moe"}, "--set prune.final: has no effect without --dynamic prune"},
		{"no kind", "simulate", []string{"simulate.attention=0.5"}, []string{"none"}, "--set simulate.attention: has no effect without --dynamic prune or moe or attention"},
		{"a flag instead", "simulate", []string{"prune.every=5"}, []string{"prune"}, "--set prune.every: has no effect on simulate, only train looks at it; wanted --every"},
		{"training's", "simulate", []string{"data.path=x", "freeze.step=1"}, all, "--set data.path: has no effect on simulate, only train looks at it\n" +
			"--set freeze.step: has no effect on simulate, only train looks at it"},
		{"silenced", "simulate", []string{"schedule.chunks=3"}, []string{"none"}, `--set schedule.chunks: has no effect while schedule.kind = "1f1b"`},
		{"nothing is decided", "simulate", []string{"balance.kind=param", "simulate.measure_times=2", "simulate.move_delay_most=2"}, []string{"none"},
			`--set simulate.measure_times: has no effect while balance.kind = "param"` + "\n" +
				`--set simulate.move_delay_most: has no effect while balance.kind = "param"`},
		{"orders are", "simulate", []string{"balance.kind=param", "schedule.kind=zb-v", "simulate.measure_times=2", "simulate.decide_times=2"}, []string{"none"}, ""},
		{"a clock of training", "simulate", []string{"comm.delay_most=2"}, []string{"none"}, ""},
		{"the chain's, of plan", "plan", []string{"dynamic.kind=mod+exit", "mod.route=predictor", "exit.after=2,3"}, []string{"none"}, ""},
		{"the chain's, of simulate", "simulate", []string{"dynamic.kind=exit", "exit.from=0.5"}, []string{"none"}, ""},
		{"no part of the chain", "plan", []string{"exit.after=2,3"}, []string{"none"}, `--set exit.after: has no effect while dynamic.kind = "none"`},
		{"a kind of training's", "plan", []string{"dynamic.kind=exit", "exit.share=0.5"}, []string{"none"}, "--set exit.share: has no effect on plan, only train looks at it"},
		{"a kind that no chain has", "simulate", []string{"dynamic.kind=prune"}, []string{"none"}, "--set dynamic.kind: has no effect on simulate, only train looks at it; wanted --dynamic"},
		{"simulate's", "plan", []string{"simulate.head=0.5"}, []string{"none"}, "--set simulate.head: has no effect on plan, only simulate looks at it"},
		{"training's, of plan", "plan", []string{"train.steps=5"}, []string{"none"}, "--set train.steps: has no effect on plan, only train looks at it"},
	} {
		settings, _, err := load("", []byte("[run]\nclock = \"wall\"\n"), c.sets)
		expect.OK(t, err)
		got := ""
		if err := settings.CheckSets(c.command, c.sets, c.kinds); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestAssumptions: the assumptions of a kind are exactly the settings that affect it.
func TestAssumptions(t *testing.T) {
	c := Default()
	c.Model.Sequence, c.Model.Hidden = 2048, 1024
	for kind, want := range map[string][]string{
		"none":   nil,
		"prune":  {"prune.times=4", "prune.initial=0.0", "prune.final=0.9", `prune.structure="unstructured"`, "prune.csr_from=0.7", "simulate.attention=0.14285714285714285"},
		"moe":    {"simulate.attention=0.14285714285714285", `simulate.routing="mixtral-24-aux-other"`, "simulate.experts=64", "simulate.expert_ranks=8", "simulate.expert_spare=0"},
		"freeze": {"simulate.frozen=0.0", "simulate.thaws=true"},
		"exit":   {"simulate.exit_from=0.25", "simulate.exit_share=0.8", "simulate.exit_noise=0.19"},
	} {
		got := slices.DeleteFunc(c.Assumptions(kind), func(s string) bool {
			return strings.HasPrefix(s, "simulate.head=") || strings.HasPrefix(s, "simulate.measure_") ||
				strings.HasPrefix(s, "simulate.decide_") || strings.HasPrefix(s, "simulate.move_")
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
}
