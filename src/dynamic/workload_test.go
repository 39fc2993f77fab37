package dynamic

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic/routing"
	"dynmo/src/expect"
)

// madeUpChain returns a chain of so many blocks between embedding and head.
func madeUpChain(t *testing.T, blocks int, run MadeUp) *Chain {
	t.Helper()
	layer := func(name string) cost.Layer {
		return cost.Layer{Name: name, Forward: 1, BackwardInput: 1, BackwardWeight: 1, NonZeros: 1_000_000}
	}
	layers := []cost.Layer{layer("embedding")}
	for b := range blocks {
		layers = append(layers, layer(fmt.Sprintf("block.%d", b)))
	}
	c, err := NewChain(append(layers, layer("head")), run)
	expect.OK(t, err)
	return c
}

// TestPruneWorkloadIsPrune: at every pruning of a schedule that is not the
// default, what is left is what training would leave, and it stays to the end.
func TestPruneWorkloadIsPrune(t *testing.T) {
	c := madeUpChain(t, 6, MadeUp{Steps: 100, Start: 10, Every: 20, Attention: 1.0 / 7})
	p := Prune{Start: 10, Every: 20, Times: 3, Initial: 0.1, Final: 0.6, CSRFrom: 0.5}
	w := PruneWorkload{p}
	for _, step := range []int{10, 30, 50, 70, 90} {
		want, due := p.Sparsity(step)
		if !due {
			want = p.Final
		}
		left := 0.0
		for _, l := range w.Costs(c, step).Layers[1:7] {
			left += float64(l.NonZeros) / 6e6
		}
		if math.Abs(1-left-want) > 1e-6 { // numbers of weights are whole
			t.Errorf("step %d: sparsity %v, want %v", step, 1-left, want)
		}
	}
}

// TestWorkloadsAssume: a workload goes by its fields, not by the defaults.
func TestWorkloadsAssume(t *testing.T) {
	c := madeUpChain(t, 8, MadeUp{Steps: 100, Every: 1, Microbatches: 4, Attention: 1.0 / 7})
	frozen := 0
	for _, l := range (FreezeWorkload{Most: 0.5}).Costs(c, 99).Layers {
		if l.BackwardWeight == 0 {
			frozen++
		}
	}
	if frozen != 5 {
		t.Errorf("%d layers are frozen, want embedding and 4 of 8 blocks", frozen)
	}
	if got := (ExitWorkload{From: 0.5, Final: 0.25}).Costs(c, 99).Layers; got[3].Forward != 1 || math.Abs(got[8].Forward-0.75) > 1e-12 {
		t.Errorf("%v of the tokens reach block 2 and %v the last, want 1 and 0.75", got[3].Forward, got[8].Forward)
	}
	experts, err := routing.New(routing.Recording{Experts: 4, Top: 1, Blocks: 8, Slots: 4, Replicas: 1, Tokens: 6})
	expect.OK(t, err)
	for slot := range experts.Slots {
		expect.OK(t, experts.Add(2, slot, []int64{3, 1, 1, 1}))
	}
	for name, c := range map[string]struct{ got, want float64 }{
		"one rank":           {ExpertWorkload{experts, 1}.Costs(c, 5).Scale[3][2], 1},
		"fullest rank":       {ExpertWorkload{experts, 2}.Costs(c, 5).Scale[3][2], 1 + c.blocks[3].mlp/3}, // 4 of 6, where 3 are equal
		"half of the tokens": {DepthWorkload{Tokens: 0.5}.Costs(c, 5).Scale[2][3], 0.5},
		"half of the scores": {AttentionWorkload{Sparsest: 0.5, Densest: 0.5}.Costs(c, 5).Layers[3].Forward, 1 - 0.5/7},
	} {
		if math.Abs(c.got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}

// TestFreezeWorkloadIsRecorded: every seed replays one of the recorded runs, all of them
// in their turn, at its steps and shares of the blocks.
func TestFreezeWorkloadIsRecorded(t *testing.T) {
	seen := map[int]bool{}
	for seed := range uint64(100) {
		c := madeUpChain(t, recordedBlocks, MadeUp{Steps: 10 + 2*recordedSteps, Start: 10, Seed: seed, Attention: 1.0 / 7})
		var got []frozenFrom
		last := 0
		for step := 10; step < c.Steps; step++ {
			if now := (FreezeWorkload{Thaws: true}).frozen(c, step); now != last {
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

// TestLeave: what leaves behind a layer is not there for later ones, and takes its part
// of the head's work with it.
func TestLeave(t *testing.T) {
	layer := func(name string, seconds float64) cost.Layer {
		return cost.Layer{Name: name, Forward: seconds, Output: 100, Bytes: cost.Bytes{Activations: 1000, Held: 10}}
	}
	chain := []cost.Layer{layer("embedding", 1), layer("block.0", 4), layer("block.1", 4), layer("head.0", 8), layer("head.1", 2)}
	got := Leave(chain, []float64{0, 0.25, 0, 0, 0})
	for l, want := range []cost.Layer{
		{Name: "embedding", Forward: 1, Output: 100, Bytes: cost.Bytes{Activations: 1000, Held: 10}},
		{Name: "block.0", Forward: 4 + 2.5, Output: 75, Bytes: cost.Bytes{Activations: 1000 + 500, Held: 10 + 5}},
		{Name: "block.1", Forward: 3, Output: 75, Bytes: cost.Bytes{Activations: 750, Held: 8}},
		{Name: "head.0", Forward: 6, Output: 75, Bytes: cost.Bytes{Activations: 750, Held: 8}},
		{Name: "head.1", Forward: 1.5, Output: 75, Bytes: cost.Bytes{Activations: 750, Held: 8}},
	} {
		if got[l] != want {
			t.Errorf("%+v, want %+v", got[l], want)
		}
	}
}

// TestRecordedExperts: every recording that settings may name is there.
func TestRecordedExperts(t *testing.T) {
	for _, name := range routing.Names() {
		c, err := config.Load("", []string{"simulate.routing=" + name})
		expect.OK(t, err)
		if w := recordedExperts(c.Simulate).(ExpertWorkload); w.Recorded.Name != name || w.Ranks != 8 {
			t.Errorf("%s: %d ranks of %s", name, w.Ranks, w.Recorded.Name)
		}
	}
	_, err := config.Load("", []string{"simulate.routing=mine"})
	names := routing.Names()
	if last := len(names) - 1; err == nil || !strings.HasSuffix(err.Error(), fmt.Sprintf(`wanted "%s" or "%s"`, strings.Join(names[:last], `", "`), names[last])) {
		t.Error(err)
	}
}
