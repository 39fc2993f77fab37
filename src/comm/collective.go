package comm

import (
	"encoding/binary"
	"fmt"
)

// Tags of the collectives. All ranks call collectives in one order, and messages with one tag keep
// their order. So one tag for each function is enough.
const (
	tagBcast = tagCollective + iota
	tagFold
	tagBarrier
)

// Bcast returns root's data on every rank. Other ranks' data is ignored. Messages follow a binomial
// tree: with r = (rank - root) modulo size, r receives from r with its lowest set bit cleared.
// Collective.
func (g *Group) Bcast(root int, data []byte) ([]byte, error) {
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	relative := (g.rank - root + g.size) % g.size
	bit := 1 // ends as the lowest set bit of relative, or at least size for root
	for ; bit < g.size && relative&bit == 0; bit <<= 1 {
	}
	if relative != 0 {
		var err error
		if data, err = g.RecvBytes((relative-bit+root)%g.size, tagBcast); err != nil {
			return nil, fmt.Errorf("bcast: %w", err)
		}
	}
	for bit >>= 1; bit > 0; bit >>= 1 {
		if relative+bit < g.size {
			if err := g.SendBytes((relative+bit+root)%g.size, tagBcast, data); err != nil {
				return nil, fmt.Errorf("bcast: %w", err)
			}
		}
	}
	return data, nil
}

// Fold combines one value v of every rank into one value on root. On root it returns this value and
// true. On every other rank it returns false, and a value without a meaning.
//
// Ranks are counted from root: r = (rank - root) modulo size. join(v, later) combines the values of two
// neighbouring ranges of r: v belongs to the lower range, pack's bytes later to the range above. The
// ranges form a binomial tree that depends on the number of ranks alone. So each r > 0 sends one
// message, to r with its lowest set bit cleared. Collective.
func Fold[T any](g *Group, root int, v T, pack func(T) []byte, join func(v T, later []byte) T) (T, bool, error) {
	relative := (g.rank - root + g.size) % g.size
	for bit := 1; bit < g.size; bit <<= 1 {
		if relative&bit != 0 {
			if err := g.SendBytes((relative-bit+root)%g.size, tagFold, pack(v)); err != nil {
				return v, false, fmt.Errorf("fold: %w", err)
			}
			return v, false, nil
		}
		if relative+bit < g.size {
			later, err := g.RecvBytes((relative+bit+root)%g.size, tagFold)
			if err != nil {
				return v, false, fmt.Errorf("fold: %w", err)
			}
			v = join(v, later)
		}
	}
	return v, true, nil
}

// Gather returns every rank's data on root, by rank, and nil elsewhere. Lengths may differ. Data goes
// along the tree of Fold, so other ranks pass on data too and need memory for it. Collective.
func (g *Group) Gather(root int, data []byte) ([][]byte, error) {
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	joined, isRoot, err := Fold(g, root, appendPart(nil, data), func(b []byte) []byte { return b }, func(a, b []byte) []byte { return append(a, b...) })
	if err != nil {
		return nil, fmt.Errorf("gather: %w", err)
	}
	if !isRoot {
		return nil, nil
	}
	all := make([][]byte, g.size)
	for i := range all {
		all[(root+i)%g.size], joined = cutPart(joined)
	}
	return all, nil
}

// appendPart appends data behind its length.
func appendPart(joined, data []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(joined, uint64(len(data))), data...)
}

// cutPart takes the first part off what appendPart has put together.
func cutPart(joined []byte) (part, rest []byte) {
	end := 8 + binary.LittleEndian.Uint64(joined)
	return joined[8:end:end], joined[end:]
}

// Allgather returns every rank's data, by rank, on all ranks. Lengths may differ. It is a Gather on
// rank 0 and a Bcast. Collective.
func (g *Group) Allgather(data []byte) ([][]byte, error) {
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	all, err := g.Gather(0, data)
	if err != nil {
		return nil, fmt.Errorf("allgather: %w", err)
	}
	var joined []byte
	for _, part := range all {
		joined = appendPart(joined, part)
	}
	if joined, err = g.Bcast(0, joined); err != nil {
		return nil, fmt.Errorf("allgather: %w", err)
	}
	all = make([][]byte, g.size)
	for rank := range all {
		all[rank], joined = cutPart(joined)
	}
	return all, nil
}

// Barrier returns when every rank has called Barrier. In round k rank r sends to rank r + 2^k and
// receives from rank r - 2^k, both modulo size (dissemination barrier: Hensgen, Finkel, Manber
// 1988). Collective.
func (g *Group) Barrier() error {
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	for distance := 1; distance < g.size; distance <<= 1 {
		if err := g.SendBytes((g.rank+distance)%g.size, tagBarrier, nil); err != nil {
			return fmt.Errorf("barrier: %w", err)
		}
		if _, err := g.RecvBytes((g.rank-distance+g.size)%g.size, tagBarrier); err != nil {
			return fmt.Errorf("barrier: %w", err)
		}
	}
	return nil
}

// Allreduce replaces dst[i] on every rank by the left fold of all ranks'
// values in rank order,
//
//	op(… op(op(dst₀[i], dst₁[i]), dst₂[i]) …, dstₙ₋₁[i])
//
// Rank 0 folds and broadcasts, so all ranks get the same bits. The bits do not depend on the hosts
// on which ranks run. dst has the same length on every rank; if not, Allreduce returns an error.
// Collective.
func Allreduce[T int64 | float64 | uint64](g *Group, dst []T, op func(a, b T) T) error {
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	all, err := g.Gather(0, Pack(dst))
	if err != nil {
		return fmt.Errorf("allreduce: %w", err)
	}
	for rank := 1; rank < len(all); rank++ {
		if len(all[rank]) != len(all[0]) {
			return fmt.Errorf("allreduce: %v gave %d bytes, this rank %d", g.peers[rank], len(all[rank]), len(all[0]))
		}
		for i, value := range Unpack[T](all[rank]) {
			dst[i] = op(dst[i], value)
		}
	}
	result, err := g.Bcast(0, Pack(dst))
	if err != nil {
		return fmt.Errorf("allreduce: %w", err)
	}
	copy(dst, Unpack[T](result))
	return nil
}
