package search

import (
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/schedule"
)

// copying returns settings with spare places for copies of experts.
func copying(t *testing.T, spare int) config.Config {
	t.Helper()
	c := recomputing(schedule.Kind1F1B)
	for name, value := range map[string]any{
		"model.family": "llama", "model.intermediate": 48, "parallel.replicas": 2, "parallel.experts": "spread",
		"dynamic.kind": "moe", "moe.experts": 4, "moe.top": 1, "moe.block_rows": 8, "moe.spare": spare,
	} {
		c.Assign(name, value)
	}
	expect.OK(t, c.Validate())
	return c
}

// TestSpare: a place for a copy takes weights, gradients and their exact sums, and moments, in every
// block. Costs without such places differ from costs with them in these bytes alone, there and back. A limit
// that leaves no memory for the places names their setting.
func TestSpare(t *testing.T) {
	none, two := copying(t, 0), copying(t, 2)
	there, shape := Suit(timed(none), Shape(none), two)
	if shape != Shape(two) || !there.Equal(timed(two)) {
		t.Errorf("there: %q, %+v, want %+v", shape, there.Layers[1].Bytes, timed(two).Layers[1].Bytes)
	}
	if back, shape := Suit(there, shape, none); shape != Shape(none) || !back.Equal(timed(none)) {
		t.Errorf("back: %q, %+v", shape, back.Layers[1].Bytes)
	}

	p, err := Configured(two)
	expect.OK(t, err)
	l, err := begin(p, timed(two)).FirstLayout()
	expect.OK(t, err)
	gateup, down := 2*48*32, 48*32
	place := int64((gateup + down) * (4 + 4 + 8)) // weights, gradients, two moments
	for _, n := range []int{gateup, down} {
		place += int64(8*kernel.FixedWords(n)+63) / 64 * 64 // sums
	}
	var want []int64
	for stage := range l.Stages() {
		blocks := 0
		for _, layer := range l.Owners().Layers(stage) {
			if strings.HasPrefix(timed(two).Layers[layer].Name, "block") {
				blocks++
			}
		}
		want = append(want, int64(2*blocks)*place)
	}
	if got := (Plan{Layout: l}).SpareBytes(two); !slices.Equal(got, want) {
		t.Errorf("places take %v bytes of the stages, want %v", got, want)
	}

	two.Balance.MemoryLimitBytes, err = begin(p, timed(two)).leastLimit()
	expect.OK(t, err)
	two.Balance.MemoryLimitBytes--
	p, err = Configured(two)
	expect.OK(t, err)
	if _, err = begin(p, timed(two)).FirstLayout(); err == nil || !strings.Contains(err.Error(), "or moe.spare = 0") {
		t.Errorf("error %v", err)
	}
}
