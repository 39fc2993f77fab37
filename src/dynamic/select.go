package dynamic

import (
	"fmt"
	"math"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// keeps is the kept sets of a stage: by layer of the stage, by parameter.
type keeps []map[int]model.Keep

// prunables calls visit for every prunable parameter of a stage in the order
// in which ties are broken: layer, then parameter.
func prunables(s *model.Stage, visit func(layer, param int, p *model.Param)) {
	for i, l := range s.Layers {
		for j, p := range l.Params() {
			if p.Prunable() {
				visit(i, j, p)
			}
		}
	}
}

// candidates calls visit with the magnitude of every value of a parameter that
// may still be kept, in index order. Magnitudes are the bits of float32(|w|),
// which order as |w| does.
func candidates(p *model.Param, t tensor.DType, visit func(i int, magnitude uint32)) {
	mask := model.Keep(tensor.Of[uint64](p.Mask))
	bits := func(i int) uint32 { return math.Float32bits(tensor.Of[float32](p.W)[i]) }
	if t == tensor.F64 {
		bits = func(i int) uint32 { return math.Float32bits(float32(tensor.Of[float64](p.W)[i])) }
	}
	for i := range p.Stored() {
		if mask == nil || mask.Has(i) {
			visit(i, bits(i)&^(1<<31))
		}
	}
}

// above keeps everything over a magnitude, and of the values at it the first
// ties in order.
func above(x *model.Exec, s *model.Stage, threshold uint32, ties int64) keeps {
	out := make(keeps, len(s.Layers))
	prunables(s, func(i, j int, p *model.Param) {
		keep := model.NewKeep(p)
		candidates(p, x.Backend.DType(), func(at int, magnitude uint32) {
			switch {
			case magnitude > threshold:
				keep.Set(at)
			case magnitude == threshold && ties > 0:
				keep.Set(at)
				ties--
			}
		})
		if out[i] == nil {
			out[i] = make(map[int]model.Keep)
		}
		out[i][j] = keep
	})
	return out
}

// radix finds the k largest magnitudes of all stages without gathering them:
// four passes of 256-bin histograms fix the k-th largest magnitude byte by
// byte, and an exclusive scan over stages shares out the values equal to it.
// Every rank sends 8 KB, whatever the model's size.
func radix(stages *comm.Group, x *model.Exec, s *model.Stage, k int64) (keeps, error) {
	mem, err := x.Device.Alloc(256 * tensor.I64.Size())
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	defer x.Device.Free(mem)
	var threshold uint32
	var mine int64 // this stage's values at the threshold, once it is known
	for fixed := 0; fixed < 32; fixed += 8 {
		x.Stream.Zero(mem)
		prunables(s, func(_, _ int, p *model.Param) {
			x.Backend.MagnitudeHistogram(x.Stream, mem, p.W, p.Mask, p.Stored(), threshold, fixed)
		})
		if err := x.Stream.Sync(); err != nil {
			return nil, fmt.Errorf("histogram: %w", err)
		}
		local := slices.Clone(tensor.Of[int64](mem))
		all := slices.Clone(local)
		if err := comm.Allreduce(stages, all, func(a, b int64) int64 { return a + b }); err != nil {
			return nil, fmt.Errorf("histogram: %w", err)
		}
		bin := 255
		for ; bin > 0 && all[bin] < k; bin-- {
			k -= all[bin]
		}
		threshold = threshold<<8 | uint32(bin)
		mine = local[bin]
	}
	// k values at the threshold are kept, the first in chain order.
	counts := make([]int64, stages.Size())
	counts[stages.Rank()] = mine
	if err := comm.Allreduce(stages, counts, func(a, b int64) int64 { return a + b }); err != nil {
		return nil, fmt.Errorf("ties: %w", err)
	}
	before := int64(0)
	for _, n := range counts[:stages.Rank()] {
		before += n
	}
	return above(x, s, threshold, min(max(k-before, 0), mine)), nil
}

// gather finds the same set as the paper's algorithm 2: every stage sends its
// min(n, k) largest magnitudes to rank 0, which selects the k largest of all
// and sends each stage the ones to keep.
func gather(stages *comm.Group, x *model.Exec, s *model.Stage, k int64) (keeps, error) {
	var magnitudes []uint32 // of every candidate, in the order of ties
	prunables(s, func(_, _ int, p *model.Param) {
		candidates(p, x.Backend.DType(), func(_ int, magnitude uint32) { magnitudes = append(magnitudes, magnitude) })
	})
	sent := largest([][]uint32{magnitudes}, min(k, int64(len(magnitudes))))[0]
	list := make([]uint32, len(sent))
	for i, at := range sent {
		list[i] = magnitudes[at]
	}
	lists, err := stages.Gather(0, comm.Pack(list))
	if err != nil {
		return nil, fmt.Errorf("gather: %w", err)
	}
	kept, err := answer(stages, lists, k)
	if err != nil {
		return nil, fmt.Errorf("gather: %w", err)
	}
	chosen := make(model.Keep, (len(magnitudes)+63)/64)
	for _, i := range kept {
		chosen.Set(int(sent[i]))
	}
	out, next := make(keeps, len(s.Layers)), 0
	prunables(s, func(i, j int, p *model.Param) {
		keep := model.NewKeep(p)
		candidates(p, x.Backend.DType(), func(at int, _ uint32) {
			if chosen.Has(next) {
				keep.Set(at)
			}
			next++
		})
		if out[i] == nil {
			out[i] = make(map[int]model.Keep)
		}
		out[i][j] = keep
	})
	return out, nil
}

// answer, on rank 0, selects from the lists of all stages and sends each its
// part; every rank returns which places of its own list are kept.
func answer(stages *comm.Group, lists [][]byte, k int64) ([]uint32, error) {
	if stages.Rank() == 0 {
		all := make([][]uint32, len(lists))
		for r, b := range lists {
			all[r] = comm.Unpack[uint32](b)
		}
		kept := largest(all, k)
		for r := 1; r < stages.Size(); r++ {
			if err := stages.SendBytes(r, comm.TagDynamic, comm.Pack(kept[r])); err != nil {
				return nil, err
			}
		}
		return kept[0], nil
	}
	b, err := stages.RecvBytes(0, comm.TagDynamic)
	if err != nil {
		return nil, err
	}
	return comm.Unpack[uint32](b), nil
}

// largest returns the places of the k largest values of all lists together,
// ascending in each list. Of equal values those in earlier lists, and earlier
// in a list, are taken.
func largest(lists [][]uint32, k int64) [][]uint32 {
	sorted := slices.Concat(lists...)
	slices.Sort(sorted)
	out := make([][]uint32, len(lists))
	if k == 0 {
		return out
	}
	threshold := sorted[int64(len(sorted))-k]
	over := int64(len(sorted)) - int64(firstAbove(sorted, threshold))
	ties := k - over
	for l, list := range lists {
		for i, v := range list {
			if v > threshold || v == threshold && ties > 0 {
				out[l] = append(out[l], uint32(i))
				if v == threshold {
					ties--
				}
			}
		}
	}
	return out
}

// firstAbove returns the first place in an ascending list whose value is above v.
func firstAbove(sorted []uint32, v uint32) int {
	at, _ := slices.BinarySearchFunc(sorted, v, func(x, v uint32) int {
		if x <= v {
			return -1
		}
		return 1
	})
	return at
}
