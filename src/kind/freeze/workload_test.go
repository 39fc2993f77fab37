package freeze

import (
	"slices"
	"testing"

	"dynmo/src/dynamic"
	"dynmo/src/dynamic/dynamictest"
)

// TestWorkloadIsRecorded: every seed replays one of the recorded runs, all of them
// in their turn, at its steps and shares of the blocks.
func TestWorkloadIsRecorded(t *testing.T) {
	seen := map[int]bool{}
	for seed := range uint64(100) {
		c := dynamictest.Chain(t, recordedBlocks, dynamic.MadeUp{Steps: 10 + 2*recordedSteps, Start: 10, Seed: seed, Attention: 1.0 / 7})
		var got []frozenFrom
		last := 0
		for step := 10; step < c.Steps; step++ {
			if now := (workload{Thaws: true}).frozen(c, step); now != last {
				got = append(got, frozenFrom{(step - 10) / 2, now})
				last = now
			}
		}
		run := slices.IndexFunc(recordedFreezes, func(r []frozenFrom) bool { return slices.Equal(r, got) })
		if run < 0 {
			t.Fatalf("seed %d freezes %v, as no recorded run", seed, got)
		}
		seen[run] = true
	}
	if len(seen) != len(recordedFreezes) {
		t.Errorf("runs %v are drawn, want all of %d", seen, len(recordedFreezes))
	}
}

// TestWorkloadAssumes: the workload goes by its fields, not by the defaults.
func TestWorkloadAssumes(t *testing.T) {
	c := dynamictest.Chain(t, 8, dynamic.MadeUp{Steps: 100, Every: 1, Microbatches: 4, Attention: 1.0 / 7})
	frozen := 0
	for _, l := range (workload{Most: 0.5}).Costs(c, 99).Layers {
		if l.BackwardWeight == 0 {
			frozen++
		}
	}
	if frozen != 5 {
		t.Errorf("%d layers are frozen, want embedding and 4 of 8 blocks", frozen)
	}
}
