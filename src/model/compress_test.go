package model_test

import (
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/random"
	"dynmo/src/tensor"
	"testing"
)

// TestCompressOn: the kernels compress a layer to the same bits as Compress. Cases go from dense
// over masks to CSR and from CSR to CSR, with matrices that keep everything or nothing.
func TestCompressOn(t *testing.T) {
	for _, csrFrom := range []float64{0, 0.6, 2} {
		plain, fast := modeltest.New(t, modeltest.Small, tensor.F32), modeltest.New(t, modeltest.Small, tensor.F32)
		for round := range uint64(3) {
			for i, l := range plain.S.Layers {
				masks, kept := make(map[int]model.Mask), make(map[int]model.Kept)
				for j, p := range l.Params() {
					if !p.Prunable() || j == int(round) {
						continue
					}
					mask := model.NewMask(p)
					for at := range p.Stored() {
						if share := uint64(j) % 4; random.Keyed(round, uint64(i), uint64(j), uint64(at)).Uint64()%3 < share {
							mask.Set(at)
						}
					}
					masks[j], kept[j] = mask, model.Kept{tensor.From(mask), mask.Count()}
				}
				expect.OK(t, l.Compress(masks, csrFrom))
				other := fast.S.Layers[i]
				expect.OK(t, other.CompressOn(fast.X, kept, csrFrom, model.CSR))
				expect.OK(t, other.CheckStructure())
				want, err := l.Hash()
				expect.OK(t, err)
				got, err := other.Hash()
				expect.OK(t, err)
				if got != want {
					t.Errorf("CSR from %v, pruning %d, layer %d: another layer than by Compress", csrFrom, round, i)
				}
			}
		}
	}
}
