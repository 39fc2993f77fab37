package model_test

import (
	"testing"

	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
)

// TestSlicesTile: the slices of all replicas are a layer's elements, each once and in order. Slices
// begin at blocks of the norm, and none is larger than the first.
func TestSlicesTile(t *testing.T) {
	for _, n := range []int{0, 1, kernel.SquareBlock, 5*kernel.SquareBlock - 3, 64 * kernel.SquareBlock} {
		for replicas := 1; replicas <= 9; replicas++ {
			end, most := 0, 0
			for d := range replicas {
				lo, hi := model.SliceOf(n, d, replicas)
				if d == 0 {
					most = hi
				}
				if lo != end || hi < lo || hi-lo > most || lo < n && lo%kernel.SquareBlock != 0 {
					t.Fatalf("replica %d of %d has [%d, %d) of %d", d, replicas, lo, hi, n)
				}
				end = hi
			}
			if end != n {
				t.Fatalf("%d replicas have %d of %d", replicas, end, n)
			}
		}
	}
}

// TestSlicesOfBorrowed: rows that a head borrows of the embedding go to the replica that has these
// rows of the embedding. That holds also where the head is cut into slices of the vocabulary.
func TestSlicesOfBorrowed(t *testing.T) {
	c := modeltest.Small
	c.Hidden, c.Vocab, c.Tied, c.HeadShards, c.Shards = 64, 300, true, 3, 2
	elements := make([]int, c.Shards)
	for d := range c.Shards {
		s := modeltest.New(t, c.AsReplica(d, 0), tensor.F32).S
		for _, tie := range c.Ties() {
			lo, hi := s.Layer(tie.Owner).SliceOfTie(tie, d)
			from, to := s.Layer(tie.Borrower).SliceOfTie(tie, d)
			if hi > lo && (lo != from || hi != to) || hi <= lo && from != to {
				t.Errorf("replica %d: layer %d has [%d, %d) of its loan to layer %d, which has [%d, %d)", d, tie.Owner, lo, hi, tie.Borrower, from, to)
			}
			elements[d] += to - from
		}
	}
	if elements[0]+elements[1] != c.Vocab*c.Hidden || elements[0] == 0 || elements[1] == 0 {
		t.Errorf("replicas have %d of %d elements", elements, c.Vocab*c.Hidden)
	}
}
