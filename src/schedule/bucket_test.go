package schedule

import (
	"slices"
	"testing"

	"dynmo/src/expect"
)

// TestBuckets: a bucket has as many layers as fit, or one. Layers without gradients make no bucket.
func TestBuckets(t *testing.T) {
	for _, tc := range []struct {
		name   string
		summed []int64
		want   []int
	}{
		{"none", nil, nil},
		{"frozen", []int64{0, 0}, nil},
		{"all in one", []int64{4, 3, 3}, []int{3}},
		{"full", []int64{4, 6, 1, 9, 1}, []int{2, 4, 5}},
		{"a large one alone", []int64{1, 30, 1, 0}, []int{1, 2, 4}},
	} {
		if got := Buckets(tc.summed, 10); !slices.Equal(got, tc.want) {
			t.Errorf("%s: buckets end at %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestCompleted: in a V the chunk nearer to the end of the chain completes its gradients first, on
// every stage. Peaks agree.
func TestCompleted(t *testing.T) {
	s, err := New(KindZBV, 3, 2, 6)
	expect.OK(t, err)
	peaks := s.Peaks()
	for stage := range 3 {
		order := s.Completed(stage)
		if len(order) != 2 {
			t.Fatalf("stage %d: %d chunks complete, want 2", stage, len(order))
		}
		for before, chunk := range order {
			if got := peaks[s.Map.Place(stage, chunk)].Before; got != before {
				t.Errorf("stage %d, chunk %d: %d before it, want %d", stage, chunk, got, before)
			}
		}
	}
	if got := s.Completed(0); !slices.Equal(got, []int{1, 0}) {
		t.Errorf("stage 0 completes %v, want the end of the chain first", got)
	}
}
