package prune

import (
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// gather finds the same set as the paper's algorithm 2. Every stage sends its min(n, k) largest
// scores to rank 0. Rank 0 selects the k largest of all and tells each stage which to keep. Scores
// come to the host for it.
func gather(stages *comm.Group, x *model.Exec, s *model.Stage, list []matrix, k int64) (choice, error) {
	scores, places, n, err := candidates(x, s, list)
	if err != nil {
		return choice{}, fmt.Errorf("gather: %w", err)
	}
	sent := largest(scores, min(k, n))
	mine := make([][]uint32, s.Config.Layers())
	for i, l := range s.Layers {
		for _, at := range sent[i] {
			mine[l.ID] = append(mine[l.ID], scores[i][at])
		}
	}
	kept, err := answer(stages, mine, k)
	if err != nil {
		return choice{}, fmt.Errorf("gather: %w", err)
	}
	masks, counts := make([]model.Mask, len(list)), make([]int, len(list))
	for i, m := range list {
		masks[i] = make(model.Mask, (m.units+63)/64)
	}
	for i, l := range s.Layers {
		for _, at := range kept[l.ID] {
			p := places[i][sent[i][at]]
			masks[p.matrix].Set(p.unit)
			counts[p.matrix]++
		}
	}
	return choice{counts, func(i int, bits tensor.Mem) error { return device.Write(x.Device, bits, mirrored(bits, masks[i])) }}, nil
}

// mirrored returns the Mirror of m with a mask in it.
func mirrored(m tensor.Mem, mask model.Mask) tensor.Mem {
	host := device.Mirror(m)
	copy(tensor.Of[uint64](host), mask)
	return host
}

// place is a unit of a matrix.
type place struct{ matrix, unit int }

// candidates returns, by layer of the stage, the scores of the units that may stay and
// where they are, in the order of ties; and how many they are.
func candidates(x *model.Exec, s *model.Stage, list []matrix) (scores [][]uint32, places [][]place, n int64, err error) {
	scores, places = make([][]uint32, len(s.Layers)), make([][]place, len(s.Layers))
	if err := x.Stream.Sync(); err != nil {
		return nil, nil, 0, err
	}
	for i, m := range list {
		mem, err := device.Read(x.Device, m.mask)
		if err != nil {
			return nil, nil, 0, err
		}
		var values tensor.Mem
		err = m.withScores(x, func(scores tensor.Mem) (err error) {
			values, err = device.Read(x.Device, scores)
			return err
		})
		if err != nil {
			return nil, nil, 0, err
		}
		mask, view := model.Mask(tensor.Of[uint64](mem)), model.View(values, x.Backend.DType().Wide())
		for u := range m.units {
			if mask == nil || mask.Has(u) {
				scores[m.layer] = append(scores[m.layer], view.Magnitude(u))
				places[m.layer] = append(places[m.layer], place{i, u})
				n++
			}
		}
	}
	return scores, places, n, nil
}

// answer returns which places of this rank's lists, by layer of the chain, hold
// the k largest values of all ranks. Rank 0 selects them and tells the others.
func answer(stages *comm.Group, mine [][]uint32, k int64) ([][]uint32, error) {
	parts, err := stages.Gather(0, packLists(mine))
	if err != nil {
		return nil, err
	}
	if stages.Rank() > 0 {
		b, err := stages.RecvBytes(0, comm.TagDynamic)
		if err != nil {
			return nil, err
		}
		return unpackLists(b, len(mine)), nil
	}
	all, owner := make([][]uint32, len(mine)), make([]int, len(mine))
	for rank, b := range parts {
		for l, list := range unpackLists(b, len(mine)) {
			if list != nil {
				all[l], owner[l] = list, rank
			}
		}
	}
	kept := largest(all, k)
	for rank := 1; rank < stages.Size(); rank++ {
		part := make([][]uint32, len(kept))
		for l := range kept {
			if owner[l] == rank {
				part[l] = kept[l]
			}
		}
		if err := stages.SendBytes(rank, comm.TagDynamic, packLists(part)); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// packLists writes lists by layer: of each that is not empty its layer and
// length, then its values.
func packLists(lists [][]uint32) []byte {
	var out []uint32
	for l, list := range lists {
		if len(list) > 0 {
			out = append(append(out, uint32(l), uint32(len(list))), list...)
		}
	}
	return comm.Pack(out)
}

// unpackLists reads what packLists wrote; lists that were empty are nil.
func unpackLists(b []byte, layers int) [][]uint32 {
	lists := make([][]uint32, layers)
	for v := comm.Unpack[uint32](b); len(v) > 0; {
		l, n := v[0], v[1]
		lists[l], v = v[2:2+n], v[2+n:]
	}
	return lists
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
