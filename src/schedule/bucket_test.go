package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"

	"dynmo/src/expect"
)

// TestBuckets: a bucket has as many layers as fit, or one; layers without gradients make none.
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

// TestSumBytes: of 4 replicas, whose buckets have 4 MiB, each holds three others' copies of
// its quarter of two buckets: of the largest first, third … and the largest second, fourth ….
func TestSumBytes(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name   string
		summed []int64
		want   int64
	}{
		{"one bucket", []int64{mib, mib}, 2 * mib / 4 * 3},
		{"two", []int64{4 * mib, 2 * mib}, 6 * mib / 4 * 3},
		{"the third in the first's place", []int64{4 * mib, 2 * mib, 8 * mib, 0}, 10 * mib / 4 * 3},
		{"a line for each", []int64{1}, 3 * 64},
	} {
		if got := SumBytes(tc.summed, 4); got != tc.want {
			t.Errorf("%s: %d bytes, want %d", tc.name, got, tc.want)
		}
	}
}

// TestMostSumBytes: no part of the chain needs more.
func TestMostSumBytes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6)) // fixed seed: a failure must repeat
	for range 1000 {
		replicas := 2 + rnd.IntN(4)
		chain := make([]int64, 1+rnd.IntN(8))
		for l := range chain {
			chain[l] = rnd.Int64N(3 * BucketBytes(replicas) / int64(1+rnd.IntN(100)))
		}
		lo := rnd.IntN(len(chain))
		part := slices.Clone(chain[lo : lo+1+rnd.IntN(len(chain)-lo)])
		slices.Reverse(part)
		if got, most := SumBytes(part, replicas), MostSumBytes(chain, replicas); got > most {
			t.Fatalf("%d replicas, %v of %v: %d bytes, at most %d expected", replicas, part, chain, got, most)
		}
	}
}

// TestCompleted: in a V the chunk nearer to the end of the chain completes its gradients
// first, on every stage, and peaks say so.
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
