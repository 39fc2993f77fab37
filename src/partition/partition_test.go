package partition

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// random returns a partition of layers over stages. Some stages are empty.
func random(rnd *rand.Rand, layers, stages int) Partition {
	p := make(Partition, stages+1)
	for s := 1; s < stages; s++ {
		p[s] = rnd.IntN(layers + 1)
	}
	p[stages] = layers
	slices.Sort(p)
	return p
}

func TestRangesCoverTheChain(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		layers, stages := 1+rnd.IntN(12), 1+rnd.IntN(6)
		p := random(rnd, layers, stages)
		if p.Stages() != stages || p.Layers() != layers {
			t.Fatalf("%v: %d stages, %d layers, want %d, %d", p, p.Stages(), p.Layers(), stages, layers)
		}
		expect.OK(t, p.Check(layers, stages, false))
		next := 0
		for s := range stages {
			lo, hi := p.Range(s)
			if lo != next || p.Count(s) != hi-lo {
				t.Fatalf("%v: stage %d holds [%d, %d), count %d", p, s, lo, hi, p.Count(s))
			}
			for l := lo; l < hi; l++ {
				if p.Stage(l) != s {
					t.Fatalf("%v: layer %d is on stage %d, want %d", p, l, p.Stage(l), s)
				}
			}
			next = hi
		}
		if next != layers {
			t.Fatalf("%v: ranges end at %d", p, next)
		}
	}
}

func TestStageSkipsEmptyStages(t *testing.T) {
	p := Partition{0, 0, 2, 2, 2, 3, 3}
	for l, want := range []int{1, 1, 4} {
		if got := p.Stage(l); got != want {
			t.Errorf("layer %d is on stage %d, want %d", l, got, want)
		}
	}
}

func TestMoved(t *testing.T) {
	for _, tc := range []struct {
		name string
		p, q Partition
		want []int
	}{
		{"nothing", Partition{0, 2, 4}, Partition{0, 2, 4}, nil},
		{"one to the left", Partition{0, 2, 4}, Partition{0, 3, 4}, []int{2}},
		{"across a stage", Partition{0, 1, 2, 3}, Partition{0, 0, 0, 3}, []int{0, 1}},
		{"fewer stages", Partition{0, 1, 2, 3}, Partition{0, 2, 3}, []int{1, 2}},
	} {
		if got := tc.p.Moved(tc.q); !slices.Equal(got, tc.want) {
			t.Errorf("%s: layers %v move, want %v", tc.name, got, tc.want)
		}
		if got := tc.q.Moved(tc.p); !slices.Equal(got, tc.want) {
			t.Errorf("%s, back: layers %v move, want %v", tc.name, got, tc.want)
		}
		if got := tc.p.Equal(tc.q); got != (tc.want == nil) {
			t.Errorf("%s: equal is %v", tc.name, got)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name     string
		p        Partition
		nonEmpty bool
		want     string // part of the error; "": none
	}{
		{"good", Partition{0, 2, 4}, true, ""},
		{"an empty stage", Partition{0, 4, 4}, false, ""},
		{"an empty stage where none may be", Partition{0, 4, 4}, true, "stage 1 0 layers"},
		{"too few cuts", Partition{0, 4}, false, "1 stages, want 2"},
		{"no cuts", nil, false, "want 2"},
		{"begins late", Partition{1, 2, 4}, false, "does not cover"},
		{"ends early", Partition{0, 2, 3}, false, "does not cover"},
		{"falls", Partition{0, 5, 4}, false, "stage 1 -1 layers"},
	} {
		err := tc.p.Check(4, 2, tc.nonEmpty)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: error %v, want %q", tc.name, err, tc.want)
		}
	}
}
