package model

import (
	"fmt"
	"slices"
	"testing"

	"dynmo/src/tensor"
)

// inBuckets returns the small model with attention in buckets, and sequences so long that
// some queries see a few keys and some none.
func inBuckets(count int) Config {
	c := small
	c.Sequence = 8
	if count > 0 {
		c = c.With(Buckets{Count: count})
	}
	return c
}

// TestGradientOfSparseAttention: with the hash held fixed, as it is where no projection is
// so near zero that the step of the differences changes its sign.
func TestGradientOfSparseAttention(t *testing.T) {
	for _, half := range []bool{false, true} {
		for _, format := range []Format{Dense, CSR} {
			t.Run(fmt.Sprintf("half=%v/%v", half, format), func(t *testing.T) {
				c := inBuckets(4)
				c.Tied, c.HalfGrain = true, half
				ch := newChain(t, c, tensor.F64)
				enlarge(ch.s)
				thin(t, ch.s, format)
				checkGradients(t, ch)
				ch.some(7, 0)
				checkGradients(t, ch)
			})
		}
	}
}

// pairs returns what attention of each block reports.
func (c *chain) pairs() (list [][]float64) {
	for i, l := range c.s.Layers {
		for k, r := range l.Readings() {
			if r.Name == Pairs {
				list = append(list, slices.Clone(tensor.Of[float64](l.Reading(c.x, c.batches[i], c.saved[i], k))))
			}
		}
	}
	return list
}

// TestPairs: layers report how many pairs they score and of how many; the counts of layers
// differ, and without tokens both are zero.
func TestPairs(t *testing.T) {
	ch := newChain(t, inBuckets(4), tensor.F64)
	enlarge(ch.s)
	ch.loss()
	const all = 2 * 2 * 8 * 9 / 2 // heads, sequences
	got := ch.pairs()
	if len(got) != 2 || got[0][0] == got[1][0] {
		t.Errorf("pairs %v: want those of two layers, which differ", got)
	}
	for _, p := range got {
		if p[0] <= 0 || p[0] > all/2 || p[1] != all {
			t.Errorf("pairs %v, want some of %d", p, all)
		}
	}
	ch.some(0, 0)
	ch.loss()
	for _, p := range ch.pairs() {
		if p[0] != 0 || p[1] != 0 {
			t.Errorf("pairs %v of no tokens", p)
		}
	}
}

// TestOneBucketIsDense: losses and gradients have the same bits.
func TestOneBucketIsDense(t *testing.T) {
	gradients := func(c Config) (all []float32) {
		ch := newChain(t, c, tensor.F32)
		ch.gradients()
		for _, l := range ch.s.Layers {
			for _, p := range l.Params() {
				all = append(all, tensor.Of[float32](p.G)...)
			}
		}
		return append(all, float32(ch.loss()))
	}
	dense := gradients(inBuckets(0))
	if !slices.Equal(gradients(inBuckets(1)), dense) {
		t.Error("one bucket differs from dense attention")
	}
	if slices.Equal(gradients(inBuckets(4)), dense) {
		t.Error("four buckets are dense attention")
	}
}

// TestSparseBytes: the order of the tokens and the starts of the buckets are saved memory.
func TestSparseBytes(t *testing.T) {
	saved := func(count int) int64 {
		ch := newChain(t, inBuckets(count), tensor.F32)
		bytes, _ := ch.s.Layers[1].Sizes(ch.x)
		return bytes
	}
	// Of 16 tokens and 2 heads: the order, 256 bytes; the starts of 2 sequences, 160; the pairs, 16.
	if got, want := saved(4)-saved(0), int64(256+aligned(160)+aligned(16)); got != want {
		t.Errorf("%d bytes more than dense attention, want %d", got, want)
	}
}
