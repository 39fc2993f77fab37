package prune

import (
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// matrix is a prunable parameter of a stage, with its units.
type matrix struct {
	layer, param int // of the stage; of the layer
	*model.Param
	home   *model.Layer
	units  int
	scores tensor.Mem // wide, one for each unit; absent: the values themselves
	mask   tensor.Mem // of the units that may stay; absent: all
}

// withScores runs f with the scores. Collective over the replicas where these share masters out.
func (m *matrix) withScores(x *model.Exec, f func(scores tensor.Mem) error) error {
	if !m.scores.IsZero() {
		return f(m.scores)
	}
	return m.home.WithMaster(x, m.Param, func() error { return f(m.Wide()) })
}

// matrices returns the prunable parameters of a stage in the order in which ties are
// broken, layer, then parameter, with their scores. Collective over the replicas where these
// share masters out.
func matrices(x *model.Exec, s *model.Stage, by structure) (list []matrix, err error) {
	for i, l := range s.Layers {
		for j, p := range l.Params() {
			if !p.Prunable() {
				continue
			}
			m := matrix{layer: i, param: j, Param: p, home: l, units: by.units(p), mask: p.Mask}
			if m.units != p.Stored() {
				m.mask = tensor.Mem{}
				if m.scores, err = x.Device.Alloc(int64(m.units) * x.Backend.DType().Wide().Size()); err != nil {
					release(x, list)
					return nil, fmt.Errorf("layer %d: %s: scores: %w", l.ID, p.Name, err)
				}
				list = append(list, m)
				err := l.WithMaster(x, p, func() error { by.score(x, m.scores, p); return nil })
				if err != nil {
					release(x, list)
					return nil, fmt.Errorf("layer %d: %w", l.ID, err)
				}
				continue
			}
			list = append(list, m)
		}
	}
	return list, nil
}

// release gives the memory of scores back.
func release(x *model.Exec, list []matrix) {
	for _, m := range list {
		x.Device.Free(m.scores)
	}
}

// choice is which units stay whole.
type choice struct {
	counts []int // by matrix
	// fill sets, or enqueues what sets, the bits of a matrix's units in memory of the device.
	fill func(matrix int, bits tensor.Mem) error
}

// radix finds the k largest scores of all stages without gathering them. Four passes of 256-bin
// histograms fix the k-th largest score byte by byte. The units with exactly this score are shared
// out over the layers in order. Every rank sends 8 KB, and 8 bytes for each layer of the chain. In
// each pass 2 KB for each matrix come from the device.
func radix(stages *comm.Group, x *model.Exec, s *model.Stage, list []matrix, k int64) (choice, error) {
	hist, err := x.Device.Alloc(int64(len(list)) * 256 * tensor.I64.Size())
	if err != nil {
		return choice{}, fmt.Errorf("histogram: %w", err)
	}
	defer x.Device.Free(hist)
	add := func(a, b int64) int64 { return a + b }
	var threshold uint32
	counts, ties := make([]int, len(list)), make([]int64, len(list)) // above the threshold, and at it
	for fixed := 0; fixed < 32; fixed += 8 {
		mine, err := histograms(x, hist, list, threshold, fixed)
		if err != nil {
			return choice{}, fmt.Errorf("histogram: %w", err)
		}
		all := make([]int64, 256)
		for i, n := range mine {
			all[i%256] += n
		}
		if err := comm.Allreduce(stages, all, add); err != nil {
			return choice{}, fmt.Errorf("histogram: %w", err)
		}
		bin := 255
		for ; bin > 0 && all[bin] < k; bin-- {
			k -= all[bin]
		}
		threshold = threshold<<8 | uint32(bin)
		for i := range list {
			for _, n := range mine[256*i+bin+1 : 256*i+256] {
				counts[i] += int(n)
			}
			ties[i] = mine[256*i+bin]
		}
	}
	if err := splitTies(stages, s, list, ties, k); err != nil {
		return choice{}, fmt.Errorf("ties: %w", err)
	}
	for i := range list {
		counts[i] += int(ties[i])
	}
	return choice{counts, func(i int, bits tensor.Mem) error {
		m := &list[i]
		return m.withScores(x, func(scores tensor.Mem) error {
			x.Backend.SelectLargest(x.Stream, bits, scores, m.mask, m.units, threshold, int(ties[i]))
			return nil
		})
	}}, nil
}

// splitTies leaves of the ties of this stage's matrices those that are among the first k of
// all stages.
func splitTies(stages *comm.Group, s *model.Stage, list []matrix, ties []int64, k int64) error {
	byLayer := make([]int64, s.Config.Layers())
	for i, m := range list {
		byLayer[s.Layers[m.layer].ID] += ties[i]
	}
	if err := comm.Allreduce(stages, byLayer, func(a, b int64) int64 { return a + b }); err != nil {
		return err
	}
	for l := range byLayer {
		byLayer[l] = min(byLayer[l], k)
		k -= byLayer[l]
	}
	for i, m := range list {
		left := &byLayer[s.Layers[m.layer].ID]
		ties[i] = min(ties[i], *left)
		*left -= ties[i]
	}
	return nil
}

// histograms counts the scores of every matrix: see kernel.Backend.MagnitudeHistogram.
func histograms(x *model.Exec, mem tensor.Mem, list []matrix, prefix uint32, fixed int) ([]int64, error) {
	if len(list) == 0 {
		return nil, nil
	}
	const bytes = 256 * 8 // of one
	x.Stream.Zero(mem)
	for i, m := range list {
		err := m.withScores(x, func(scores tensor.Mem) error {
			x.Backend.MagnitudeHistogram(x.Stream, mem.Span(int64(i)*bytes, bytes), scores, m.mask, m.units, prefix, fixed)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if err := x.Stream.Sync(); err != nil {
		return nil, err
	}
	host, err := device.Read(x.Device, mem)
	return slices.Clone(tensor.Of[int64](host)), err
}

// compress drops the units of a stage that were not chosen, layer by layer.
func compress(x *model.Exec, s *model.Stage, by structure, list []matrix, chosen choice, csrFrom float64) error {
	for first := 0; first < len(list); {
		end := first
		for end < len(list) && list[end].layer == list[first].layer {
			end++
		}
		if err := compressLayer(x, s.Layers[list[first].layer], by, list, first, end, chosen, csrFrom); err != nil {
			return err
		}
		first = end
	}
	return nil
}

// compressLayer drops those of a layer's matrices, list[first:end].
func compressLayer(x *model.Exec, l *model.Layer, by structure, list []matrix, first, end int, chosen choice, csrFrom float64) error {
	kept := make(map[int]model.Kept)
	var masks []tensor.Mem
	defer func() {
		for _, m := range masks {
			x.Device.Free(m)
		}
	}()
	alloc := func(bits int) (tensor.Mem, error) {
		m, err := x.Device.Alloc(int64(bits+63) / 64 * tensor.U64.Size())
		masks = append(masks, m)
		return m, err
	}
	for i := first; i < end; i++ {
		m := &list[i]
		bits, err := alloc(m.units)
		if err == nil {
			err = chosen.fill(i, bits)
		}
		if err == nil && m.units != m.Stored() {
			whole := bits
			if bits, err = alloc(m.Stored()); err == nil {
				err = l.WithMaster(x, m.Param, func() error { by.mask(x, bits, whole, m.Param); return nil })
			}
		}
		if err != nil {
			return fmt.Errorf("layer %d: %s: %w", l.ID, m.Name, err)
		}
		kept[m.param] = model.Kept{Mask: bits, Count: int(by.elements(int64(m.units), int64(chosen.counts[i])))}
	}
	return l.CompressOn(x, kept, csrFrom, by.sparse())
}
