package balance

import (
	"errors"
	"fmt"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/partition"
)

// chainOf returns a problem with the names of a model's chain.
func chainOf(stages int, names ...string) Problem {
	p := Problem{Stages: stages, Names: names}
	for range names {
		p.Seconds = append(p.Seconds, 1)
	}
	return p
}

func blocks(n int, halves bool) []string {
	names := []string{"embedding"}
	for b := range n {
		if halves {
			names = append(names, fmt.Sprintf("block.%d.attention", b), fmt.Sprintf("block.%d.mlp", b))
		} else {
			names = append(names, fmt.Sprintf("block.%d", b))
		}
	}
	return append(names, "head")
}

func TestUniform(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    Problem
		want partition.Partition
	}{
		{"even", chainOf(2, blocks(4, false)...), partition.Partition{0, 3, 6}},
		{"the first stages take the rest", chainOf(4, blocks(6, false)...), partition.Partition{0, 3, 5, 6, 8}},
		{"halves stay together", chainOf(4, blocks(6, true)...), partition.Partition{0, 5, 9, 11, 14}},
		{"halves where blocks are too few", chainOf(4, blocks(3, true)...), partition.Partition{0, 3, 5, 6, 8}},
		{"layers where halves are too few", chainOf(3, blocks(1, false)...), partition.Partition{0, 1, 2, 3}},
		{"a head in slices", chainOf(2, "embedding", "block.0", "block.1", "head.0", "head.1"), partition.Partition{0, 2, 5}},
		{"no names", Problem{Stages: 3, Seconds: make([]float64, 8)}, partition.Partition{0, 3, 6, 8}},
		{"one stage", chainOf(1, blocks(2, false)...), partition.Partition{0, 4}},
		{"empty stages", Problem{Stages: 3, Seconds: make([]float64, 2), AllowEmpty: true}, partition.Partition{0, 1, 2, 2}},
	} {
		got, err := Uniform(tc.p)
		if err != nil || !got.Cuts.Equal(tc.want) {
			t.Errorf("%s: %v (%v), want %v", tc.name, got.Cuts, err, tc.want)
		}
	}
}

func TestParamAndRegex(t *testing.T) {
	p := chainOf(3, blocks(4, false)...)
	p.Seconds = []float64{9, 2, 2, 2, 2, 9}
	if got, err := Param(p); err != nil || !got.Cuts.Equal(partition.Partition{0, 1, 5, 6}) {
		t.Errorf("param: %v (%v)", got.Cuts, err)
	}
	if got, err := Regex(p, "BLOCK"); err != nil || got.Cuts.Count(0) != 3 || got.Bottleneck != 13 {
		t.Errorf("regex: %v, bottleneck %v (%v), want two blocks on stage 0", got.Cuts, got.Bottleneck, err)
	}
	for _, pattern := range []string{"(", "moe"} {
		if _, err := Regex(p, pattern); err == nil {
			t.Errorf("regex %q is accepted", pattern)
		}
	}
}

func TestStaticChecksMemory(t *testing.T) {
	p := chainOf(2, blocks(2, false)...)
	p.StaticBytes, p.Capacity = []int64{50, 10, 10, 20}, []int64{55, 100}
	var memory *MemoryError
	if _, err := Uniform(p); !errors.As(err, &memory) || memory.Stage != 0 || memory.Missing != 5 {
		t.Errorf("error %v, want 5 bytes missing on stage 0", err)
	}
}

func TestDiffusionPaper(t *testing.T) {
	// Stage 0 is overloaded; its shortest layer, the last, goes to stage 2.
	p := Problem{Seconds: []float64{4, 3, 2, 3, 1}, Stages: 3}
	present := partition.Partition{0, 3, 4, 5}
	got, err := DiffusionPaper(p, present, 10)
	expect.OK(t, err)
	if fmt.Sprint(got.Owner) != "[0 1 2 1 2]" && fmt.Sprint(got.Owner) != "[0 0 2 1 2]" {
		t.Errorf("owners %v", got.Owner)
	}
	if got.Contiguous {
		t.Errorf("owners %v are said to be contiguous", got.Owner)
	}
	_, before := variance([]float64{9, 3, 1})
	if _, after := variance(got.StageSeconds); after >= before {
		t.Errorf("variance %v, was %v", after, before)
	}
	p.StaticBytes, p.Capacity = []int64{1, 1, 1, 1, 1}, []int64{3, 1, 1}
	full, err := DiffusionPaper(p, present, 10)
	if err != nil || full.Transfers != 0 || !full.Contiguous || full.Bottleneck != 9 {
		t.Errorf("with full receivers: %+v (%v), want no transfer", full, err)
	}
	// Two layers take 2·(1 + 2·1) bytes on stages 1 and 2.
	p.HeldBytes, p.Between, p.Capacity = p.StaticBytes, []int{1, 2, 2}, []int64{9, 5, 5}
	full, err = DiffusionPaper(p, present, 10)
	if err != nil || full.Transfers != 0 {
		t.Errorf("with receivers that hold much between backwards: %+v (%v), want no transfer", full, err)
	}
}
