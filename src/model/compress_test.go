package model

import (
	"testing"

	"dynmo/src/random"
	"dynmo/src/tensor"
)

// TestCompressOn: the kernels leave the layer that Compress leaves, bit for bit, from dense
// over masks to CSR and from CSR to CSR, with matrices of which all or nothing is kept.
func TestCompressOn(t *testing.T) {
	for _, csrFrom := range []float64{0, 0.6, 2} {
		plain, fast := newChain(t, small, tensor.F32), newChain(t, small, tensor.F32)
		for round := range uint64(3) {
			for i, l := range plain.s.Layers {
				masks, kept := make(map[int]Mask), make(map[int]Kept)
				for j, p := range l.Params() {
					if !p.Prunable() || j == int(round) {
						continue
					}
					mask := NewMask(p)
					for at := range p.Stored() {
						if share := uint64(j) % 4; random.Keyed(round, uint64(i), uint64(j), uint64(at)).Uint64()%3 < share {
							mask.Set(at)
						}
					}
					masks[j], kept[j] = mask, Kept{tensor.From(mask), mask.Count()}
				}
				must(t, l.Compress(masks, csrFrom))
				other := fast.s.Layers[i]
				must(t, other.CompressOn(fast.x, kept, csrFrom, CSR))
				must(t, other.CheckStructure())
				want, err := l.Hash()
				must(t, err)
				got, err := other.Hash()
				must(t, err)
				if got != want {
					t.Errorf("CSR from %v, pruning %d, layer %d: another layer than by Compress", csrFrom, round, i)
				}
			}
		}
	}
}
