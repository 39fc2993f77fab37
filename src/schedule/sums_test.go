package schedule

import (
	"slices"
	"testing"
)

// TestBytes: with 4 replicas buckets have 4 MiB. Each replica receives three others' copies of its
// quarter of two buckets: the largest of the first, third … and the largest of the second, fourth
// ….
func TestBytes(t *testing.T) {
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
		if got := (Sums{}).Bytes(tc.summed, 4); got != tc.want {
			t.Errorf("%s: %d bytes, want %d", tc.name, got, tc.want)
		}
	}
}

// TestAdders: in every group one member adds a share; the owner adds in its own group. Sent and the
// memory of a bucket agree with the members' shares.
func TestAdders(t *testing.T) {
	const line = 64
	for replicas := 2; replicas < 14; replicas++ {
		for group := range replicas + 2 {
			s := Sums{Group: group}
			added := make([]int, replicas)   // shares that the replica adds
			sent := make([][3]int, replicas) // shares that the replica sends, by round
			for owner := range replicas {
				for k := range s.Groups(replicas) {
					lo, hi := s.Members(k, replicas)
					adder := s.Adder(owner, k, replicas)
					if adder < lo || adder >= hi || s.GroupOf(adder, replicas) != k || k == s.GroupOf(owner, replicas) && adder != owner {
						t.Fatalf("%d replicas in groups of %d: share %d of group %d, [%d, %d), is added by %d", replicas, group, owner, k, lo, hi, adder)
					}
					added[adder]++
					for d := lo; d < hi; d++ {
						if d != adder {
							sent[d][0]++
						}
					}
					if adder != owner {
						sent[adder][1]++
					}
				}
				sent[owner][s.Rounds(replicas)] = replicas - 1
			}
			room := 0
			for d := range replicas {
				for round := range s.Rounds(replicas) + 1 {
					want := float64(sent[d][round]) / float64(replicas)
					if got := s.Sent(round, d, replicas); got != want {
						t.Fatalf("%d replicas in groups of %d: in round %d replica %d sends %v, want %v", replicas, group, round, d, got, want)
					}
					if s.Rounded = true; s.Sent(0, d, replicas) != float64(sent[d][0])/float64(2*replicas) {
						t.Fatalf("%d replicas in groups of %d: rounded values are not half", replicas, group)
					}
					s.Rounded = false
					shares := 0.
					for to := range replicas {
						shares += s.Shares(round, d, to, replicas)
					}
					if shares != float64(sent[d][round]) {
						t.Fatalf("%d replicas in groups of %d: in round %d replica %d sends %v shares to others, want %d", replicas, group, round, d, shares, sent[d][round])
					}
					if next := s.Next(round, d, replicas); next == d && sent[d][round] > 0 {
						t.Fatalf("%d replicas in groups of %d: in round %d replica %d, which sends %d shares, sends to %d", replicas, group, round, d, sent[d][round], next)
					}
				}
				lo, hi := s.Members(s.GroupOf(d, replicas), replicas)
				room = max(room, added[d]*(hi-lo-1))
			}
			want := int64(room+s.Groups(replicas)-1) * line
			if got := s.bucketBytes(line, replicas); got != want {
				t.Fatalf("%d replicas in groups of %d: a bucket takes %d bytes, want %d", replicas, group, got, want)
			}
		}
	}
}

// TestSlices: slices are whole slabs of every layer. Weights of half the bytes make the last round
// half as long.
func TestSlices(t *testing.T) {
	s := Sums{Sliced: true, Narrow: true}
	if got := s.share([]int64{2*sliceBytes + 4, 4, 0}, 3); got != 2*sliceBytes {
		t.Errorf("a replica of 3 has %d bytes of two layers, want %d", got, 2*sliceBytes)
	}
	if first, last := s.Sent(0, 1, 4), s.Sent(1, 1, 4); first != 0.75 || last != 0.375 || s.Shares(1, 0, 1, 4) != 0.5 {
		t.Errorf("a replica of 4 sends %v and %v of the gradients' bytes, want 0.75 and half of it", first, last)
	}
}

// TestTraffic: each of 8 replicas in groups of 4 sends 1/8 of the gradients to the other group.
// Without groups it sends half of the gradients to the other four.
func TestTraffic(t *testing.T) {
	for _, tc := range []struct {
		sums Sums
		want []float64
	}{
		{Sums{}, []float64{7. / 8, 7. / 8}},
		{Sums{Rounded: true}, []float64{7. / 16, 7. / 8}},
		{Sums{Group: 4}, []float64{6. / 8, 1. / 8, 7. / 8}},
		{Sums{Group: 4, Rounded: true}, []float64{6. / 16, 1. / 8, 7. / 8}},
		{Sums{Group: 8}, []float64{7. / 8, 7. / 8}},
	} {
		var got []float64
		for round := range tc.sums.Rounds(8) + 1 {
			got = append(got, tc.sums.Sent(round, 5, 8))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%+v: a replica sends %v, want %v", tc.sums, got, tc.want)
		}
	}
}
