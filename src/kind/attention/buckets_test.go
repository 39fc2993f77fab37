package attention

import (
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"fmt"
	"slices"
	"testing"
)

// inBuckets returns the small model with attention in buckets, and sequences so long that
// some queries see a few keys and some none.
func inBuckets(count int) model.Config {
	c := modeltest.Small
	c.Sequence = 8
	if count > 0 {
		c = c.With(Buckets{Count: count})
	}
	return c
}

// TestGradientOfSparseAttention: with the hash held fixed, as it is where no projection is
// so near zero that the step of the differences changes its sign.
func TestGradientOfSparseAttention(t *testing.T) {
	for _, shared := range []bool{false, true} {
		for _, format := range []model.Format{model.Dense, model.CSR} {
			t.Run(fmt.Sprintf("shared=%v/%v", shared, format), func(t *testing.T) {
				c := inBuckets(4)
				c.Tied, c.HalfGrain = true, shared
				modeltest.Edit(&c, func(k *Buckets) { k.SharedKeys = shared })
				ch := modeltest.New(t, c, tensor.F64)
				modeltest.Enlarge(ch.S)
				modeltest.Thin(t, ch.S, format)
				modeltest.CheckGradients(t, ch)
				ch.Some(7, 0)
				modeltest.CheckGradients(t, ch)
			})
		}
	}
}

// pairs returns what attention of each block reports.
func pairs(c *modeltest.Chain) (list [][]float64) {
	for i, l := range c.S.Layers {
		for k, r := range l.Readings() {
			if r.Name == pairCounts {
				list = append(list, slices.Clone(tensor.Of[float64](l.Reading(c.X, c.Batches[i], c.Saved[i], k))))
			}
		}
	}
	return list
}

// TestPairs: layers report how many pairs they score and of how many; the counts of layers
// differ, and without tokens both are zero.
func TestPairs(t *testing.T) {
	ch := modeltest.New(t, inBuckets(4), tensor.F64)
	modeltest.Enlarge(ch.S)
	ch.Loss()
	const all = 2 * 2 * 8 * 9 / 2 // heads, sequences
	got := pairs(ch)
	if len(got) != 2 || got[0][0] == got[1][0] {
		t.Errorf("pairs %v: want those of two layers, which differ", got)
	}
	for _, p := range got {
		if p[0] <= 0 || p[0] > all/2 || p[1] != all {
			t.Errorf("pairs %v, want some of %d", p, all)
		}
	}
	ch.Some(0, 0)
	ch.Loss()
	for _, p := range pairs(ch) {
		if p[0] != 0 || p[1] != 0 {
			t.Errorf("pairs %v of no tokens", p)
		}
	}
}

// TestOneBucketIsDense: losses and gradients have the same bits.
func TestOneBucketIsDense(t *testing.T) {
	gradients := func(c model.Config) (all []float32) {
		ch := modeltest.New(t, c, tensor.F32)
		ch.Gradients()
		for _, l := range ch.S.Layers {
			for _, p := range l.Params() {
				all = append(all, tensor.Of[float32](p.G)...)
			}
		}
		return append(all, float32(ch.Loss()))
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
		ch := modeltest.New(t, inBuckets(count), tensor.F32)
		return ch.S.Layers[1].Sizes(ch.X).Kept
	}
	// Of 16 tokens and 2 heads: the order, 256 bytes; the starts of 2 sequences, 160; the pairs, 16; each on cache lines.
	if got, want := saved(4)-saved(0), int64(256+192+64); got != want {
		t.Errorf("%d bytes more than dense attention, want %d", got, want)
	}
}
