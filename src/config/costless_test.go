package config

import (
	"slices"
	"strings"
	"testing"
)

// TestCostless: a kind of dynamism that changes no layer's cost is said before training.
func TestCostless(t *testing.T) {
	for _, c := range []struct{ kind, sets, want string }{
		{"prune", "", ""},
		{"prune", "prune.csr_from=1", `prune changes no layer's cost: pruned weights stay masked dense on device.kind = "cpu". A prune.csr_from below 1 stores them as CSR`},
		{"prune", "prune.structure=2:4 prune.final=0.5", `prune changes no layer's cost: prune.structure = "2:4" keeps pruned weights masked dense`},
		{"prune", "prune.final=0", "prune changes no layer's cost: prune.initial and prune.final = 0 remove no weight"},
		{"freeze", "freeze.start=0", ""},
		{"freeze", "freeze.when=step freeze.step=10", ""},
		{"mod", "mod.capacity=1", "mod changes no layer's cost: mod.capacity = 1 takes every token into the routed blocks"},
		{"mod", "mod.capacity=0.5", ""},
		{"moe", "model.family=llama", ""},
		{"moe", "model.family=llama moe.experts=1 moe.top=1", "moe changes no layer's cost: every token goes to each of the 1 experts"},
		{"prune+moe", "model.family=llama prune.csr_from=0.5 moe.experts=2 moe.top=2", "moe changes no layer's cost: every token goes to each of the 2 experts"},
	} {
		loaded, _, err := load("", nil, append(strings.Fields(c.sets), "dynamic.kind="+c.kind, "prune.start=0", "train.steps=1000"))
		if err != nil {
			t.Errorf("%s %s: %v", c.kind, c.sets, err)
			continue
		}
		said := slices.DeleteFunc(loaded.Ignored(), func(line string) bool { return !strings.Contains(line, "changes no layer's cost") })
		if got := strings.Join(said, "\n"); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.kind, c.sets, got, c.want)
		}
	}
}
