package dynamic

import (
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// masks is what is kept of a stage: by layer of the stage, by parameter.
type masks []map[int]model.Mask

// prunables calls visit for every prunable parameter of a stage in the order
// in which ties are broken: layer, then parameter.
func prunables(s *model.Stage, visit func(layer, param int, p *model.Param) error) error {
	for i, l := range s.Layers {
		for j, p := range l.Params() {
			if !p.Prunable() {
				continue
			}
			if err := visit(i, j, p); err != nil {
				return fmt.Errorf("layer %d: %s: %w", l.ID, p.Name, err)
			}
		}
	}
	return nil
}

// candidates calls visit with the magnitude of every value of a parameter that
// may still be kept, in index order.
func candidates(l *model.Layer, p *model.Param, visit func(i int, magnitude uint32)) error {
	mask, err := l.Mask(p)
	if err != nil {
		return err
	}
	w, err := l.Get(p)
	if err != nil {
		return err
	}
	for i := range w.Len() {
		if mask == nil || mask.Has(i) {
			visit(i, w.Magnitude(i))
		}
	}
	return nil
}

// above keeps everything over a magnitude, and of the values at it in each layer
// the first ties[layer's chain position] in order.
func above(s *model.Stage, threshold uint32, ties []int64) (masks, error) {
	out := make(masks, len(s.Layers))
	err := prunables(s, func(i, j int, p *model.Param) error {
		mask, left := model.NewMask(p), &ties[s.Layers[i].ID]
		err := candidates(s.Layers[i], p, func(at int, magnitude uint32) {
			switch {
			case magnitude > threshold:
				mask.Set(at)
			case magnitude == threshold && *left > 0:
				mask.Set(at)
				*left--
			}
		})
		out.set(i, j, mask)
		return err
	})
	return out, err
}

// set notes the mask of a parameter of a layer.
func (m masks) set(layer, param int, mask model.Mask) {
	if m[layer] == nil {
		m[layer] = make(map[int]model.Mask)
	}
	m[layer][param] = mask
}

// radix finds the k largest magnitudes of all stages without gathering them:
// four passes of 256-bin histograms fix the k-th largest magnitude byte by
// byte, and the values equal to it are shared out over the layers in order.
// Every rank sends 8 KB, and 8 bytes for each layer of the chain.
func radix(stages *comm.Group, x *model.Exec, s *model.Stage, k int64) (masks, error) {
	mem, err := x.Device.Alloc(256 * tensor.I64.Size())
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	defer x.Device.Free(mem)
	add := func(a, b int64) int64 { return a + b }
	var threshold uint32
	ties := make([]int64, s.Config.Layers()) // values at the threshold, once it is known, by layer
	for fixed := 0; fixed < 32; fixed += 8 {
		all, mine := make([]int64, 256), make([][]int64, len(s.Layers))
		for i, l := range s.Layers {
			if mine[i], err = histogram(x, mem, l, threshold, fixed); err != nil {
				return nil, fmt.Errorf("histogram: %w", err)
			}
			for bin, n := range mine[i] {
				all[bin] += n
			}
		}
		if err := comm.Allreduce(stages, all, add); err != nil {
			return nil, fmt.Errorf("histogram: %w", err)
		}
		bin := 255
		for ; bin > 0 && all[bin] < k; bin-- {
			k -= all[bin]
		}
		threshold = threshold<<8 | uint32(bin)
		for i, l := range s.Layers {
			ties[l.ID] = mine[i][bin]
		}
	}
	if err := comm.Allreduce(stages, ties, add); err != nil {
		return nil, fmt.Errorf("ties: %w", err)
	}
	for l := range ties { // k values at the threshold are kept, the first in chain order
		ties[l] = min(ties[l], k)
		k -= ties[l]
	}
	return above(s, threshold, ties)
}

// histogram counts the magnitudes of a layer's prunable parameters: see
// kernel.Backend.MagnitudeHistogram.
func histogram(x *model.Exec, mem tensor.Mem, l *model.Layer, prefix uint32, fixed int) ([]int64, error) {
	x.Stream.Zero(mem)
	for _, p := range l.Params() {
		if p.Prunable() {
			x.Backend.MagnitudeHistogram(x.Stream, mem, p.Wide(), p.Mask, p.Stored(), prefix, fixed)
		}
	}
	if err := x.Stream.Sync(); err != nil {
		return nil, err
	}
	host, err := device.Read(x.Device, mem)
	return slices.Clone(tensor.Of[int64](host)), err
}
