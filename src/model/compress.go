package model

import (
	"fmt"
	"math/bits"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// Mask says which stored values of one parameter's W are kept: bit i%64 of word i/64 is 1 if value i
// is. Of a masked matrix, pruned values are stored too, with bit 0.
type Mask []uint64

// Has reports whether stored value i is kept.
func (k Mask) Has(i int) bool { return k[i/64]>>(i%64)&1 == 1 }

// Set keeps stored value i.
func (k Mask) Set(i int) { k[i/64] |= 1 << (i % 64) }

// Count returns how many values are kept.
func (k Mask) Count() int {
	n := 0
	for _, w := range k {
		n += bits.OnesCount64(w)
	}
	return n
}

// NewMask returns a mask for a parameter, with all bits 0.
func NewMask(p *Param) Mask { return make(Mask, (p.Stored()+63)/64) }

// Kept is a Mask in device memory, with its Count. Bits after that of the last stored value must be
// 0.
type Kept struct {
	Mask  tensor.Mem
	Count int
}

// Compress removes the weights and moments that masks does not keep. masks is by index in Params;
// parameters without a mask stay. A matrix is stored as CSR if its share of zeros (0 to 1) is at
// least csrFrom, else dense with a mask; CSR stays CSR. Call Compress between steps: gradients are
// lost. Compress copies the layer through the host and needs no kernels; training uses CompressOn.
func (l *Layer) Compress(masks map[int]Mask, csrFrom float64) error {
	counts := make(map[int]int)
	for i, mask := range masks {
		counts[i] = mask.Count()
	}
	return l.compress(counts, csrFrom, CSR, func(next *Layer) error {
		for i, p := range l.params {
			if err := transfer(l.device, next.params[i], p, masks[i]); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
		}
		return nil
	})
}

// CompressOn is Compress with the kernels of x, without copies to the host. sparse is the format
// that is used from csrFrom on: CSR, or BlockCSR if every mask keeps whole blocks. Slices of a
// sliced layer are cut anew. Collective over the replicas if the layer is sliced.
func (l *Layer) CompressOn(x *Exec, kept map[int]Kept, csrFrom float64, sparse Format) error {
	return l.Unsliced(x, func() error { return l.compressOn(x, kept, csrFrom, sparse) })
}

func (l *Layer) compressOn(x *Exec, kept map[int]Kept, csrFrom float64, sparse Format) error {
	counts := make(map[int]int)
	for i, k := range kept {
		counts[i] = k.Count
	}
	return l.compress(counts, csrFrom, sparse, func(next *Layer) error {
		var ranks []tensor.Mem
		defer func() {
			for _, m := range ranks {
				l.device.Free(m)
			}
		}()
		for i, p := range l.params {
			k, ok := kept[i]
			switch dst := next.params[i]; {
			case !ok:
				copyParam(x, dst, p)
			case dst.Format == Masked:
				maskParam(x, dst, p, k.Mask)
			default:
				m, err := l.device.Alloc(int64((p.Stored()+63)/64+1) * tensor.I32.Size())
				if err != nil {
					return fmt.Errorf("%s: %w", p.Name, err)
				}
				ranks = append(ranks, m)
				compactParam(x, dst, p, k.Mask, m)
			}
		}
		return x.Stream.Sync()
	})
}

// compress replaces the layer by one with the given count of kept values for each parameter index.
// fill fills the new layer first.
func (l *Layer) compress(counts map[int]int, csrFrom float64, sparse Format, fill func(next *Layer) error) error {
	h := l.header()
	for i, n := range counts {
		p := l.params[i]
		h.NNZ[i] = n
		h.Formats[i] = Masked
		if p.Format.Sparse() || 1-float64(n)/float64(p.Rows*p.Cols) >= csrFrom {
			h.Formats[i] = sparse
		}
	}
	next, err := newLayer(l.config, l.Description, h, l.device, l.dtype)
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if err := fill(next); err != nil {
		next.Free()
		return fmt.Errorf("compress: %w", err)
	}
	old := *l
	*l = *next
	l.state, old.state = old.state, nil
	old.Free()
	return nil
}

// sides are memory of dst and, of the same sort, of src.
type sides struct{ dst, src tensor.Mem }

// wides returns the master and moments of dst and src, in pairs. Absent ones are left out.
func wides(dst, src *Param) (list []sides) {
	for _, s := range []sides{{dst.Master, src.Master}, {dst.M, src.M}, {dst.V, src.V}} {
		if !s.src.IsZero() {
			list = append(list, s)
		}
	}
	return list
}

// copyParam copies values and structure.
func copyParam(x *Exec, dst, src *Param) {
	for _, s := range append(wides(dst, src), sides{dst.W, src.W}, sides{dst.Mask, src.Mask}, sides{dst.RowPtr, src.RowPtr}, sides{dst.ColIdx, src.ColIdx}) {
		if !s.src.IsZero() {
			x.Stream.Copy(s.dst, s.src)
		}
	}
}

// maskParam copies values, those that the mask drops as zeros.
func maskParam(x *Exec, dst, src *Param, mask tensor.Mem) {
	x.Stream.Copy(dst.Mask, mask)
	x.Stream.Copy(dst.W, src.W)
	x.Backend.MaskWeights(x.Stream, dst.W, dst.Mask, dst.Stored())
	for _, s := range wides(dst, src) {
		x.Stream.Copy(s.dst, s.src)
		x.Backend.Mask(x.Stream, s.dst, dst.Mask, dst.Stored())
	}
}

// compactParam writes the values that the mask keeps one behind the other, and where they
// are. ranks has room for kernel.Backend's MaskRanks.
func compactParam(x *Exec, dst, src *Param, mask, ranks tensor.Mem) {
	n := src.Stored()
	x.Backend.MaskRanks(x.Stream, ranks, mask, n)
	x.Backend.Compact(x.Stream, dst.W, src.W, mask, ranks, n, dst.NNZ)
	for _, s := range wides(dst, src) {
		x.Backend.CompactWide(x.Stream, s.dst, s.src, mask, ranks, n, dst.NNZ)
	}
	x.Backend.CompactRows(x.Stream, kernel.CSR{Rows: dst.Rows, Cols: dst.Cols, NNZ: dst.NNZ, RowPtr: dst.RowPtr, ColIdx: dst.ColIdx},
		kernel.CSR{Rows: src.Rows, Cols: src.Cols, NNZ: n, RowPtr: src.RowPtr, ColIdx: src.ColIdx}, mask, ranks)
}

// transfer copies the kept values of src, and their moments and structure, to
// dst. A nil mask keeps everything in its form.
func transfer(d device.Device, dst, src *Param, mask Mask) error {
	pairs := [][2]tensor.Mem{{dst.W, src.W}, {dst.Master, src.Master}, {dst.M, src.M}, {dst.V, src.V}}
	if mask == nil {
		pairs = append(pairs, [2]tensor.Mem{dst.Mask, src.Mask}, [2]tensor.Mem{dst.RowPtr, src.RowPtr}, [2]tensor.Mem{dst.ColIdx, src.ColIdx})
	}
	for _, p := range pairs {
		from, err := device.Read(d, p[1])
		if err != nil {
			return err
		}
		to := device.Mirror(p[0])
		switch elements := int64(src.Stored()); {
		case mask == nil:
			copy(tensor.Of[byte](to), tensor.Of[byte](from))
		case from.Bytes == 2*elements:
			pick(tensor.Of[uint16](to), tensor.Of[uint16](from), dst.Format, mask)
		case from.Bytes == 4*elements:
			pick(tensor.Of[uint32](to), tensor.Of[uint32](from), dst.Format, mask)
		default:
			pick(tensor.Of[uint64](to), tensor.Of[uint64](from), dst.Format, mask)
		}
		if err := device.Write(d, p[0], to); err != nil {
			return err
		}
	}
	switch {
	case mask == nil:
		return nil
	case dst.Format == Masked:
		return device.Write(d, dst.Mask, tensor.From(mask))
	}
	return structure(d, dst, src, mask)
}

// pick copies the kept values: to where they were if the format is masked, else
// one behind the other.
func pick[T uint16 | uint32 | uint64](to, from []T, f Format, mask Mask) {
	n := 0
	for i := range from {
		if !mask.Has(i) {
			continue
		}
		if f == Masked {
			n = i
		}
		to[n] = from[i]
		n++
	}
}

// structure writes the row pointers and column indices of what is kept.
func structure(d device.Device, dst, src *Param, mask Mask) error {
	oldRows, oldCols, err := readStructure(d, src)
	if err != nil {
		return err
	}
	rowMem, colMem := device.Mirror(dst.RowPtr), device.Mirror(dst.ColIdx)
	rows, cols := tensor.Of[int32](rowMem), tensor.Of[int32](colMem)
	n := int32(0)
	for r := range src.Rows {
		lo, hi := r*src.Cols, (r+1)*src.Cols
		if src.Format.Sparse() {
			lo, hi = int(oldRows[r]), int(oldRows[r+1])
		}
		for i := lo; i < hi; i++ {
			if !mask.Has(i) {
				continue
			}
			cols[n] = int32(i - lo)
			if src.Format.Sparse() {
				cols[n] = oldCols[i]
			}
			n++
		}
		rows[r+1] = n
	}
	if err := device.Write(d, dst.RowPtr, rowMem); err != nil {
		return err
	}
	return device.Write(d, dst.ColIdx, colMem)
}

// readStructure returns the row pointers and column indices of a sparse matrix,
// nothing of another.
func readStructure(d device.Device, p *Param) (rows, cols []int32, err error) {
	rowMem, err := device.Read(d, p.RowPtr)
	if err != nil {
		return nil, nil, err
	}
	colMem, err := device.Read(d, p.ColIdx)
	return tensor.Of[int32](rowMem), tensor.Of[int32](colMem), err
}

// Structure returns the row pointers and column indices of a matrix in CSR, to read only. No work on
// the device may use them meanwhile.
func (l *Layer) Structure(p *Param) (rows, cols []int32, err error) {
	return readStructure(l.device, p)
}

// Mask returns the mask of a masked matrix, to read only; nil for other formats. No work on the
// device may use it meanwhile.
func (l *Layer) Mask(p *Param) (Mask, error) {
	host, err := device.Read(l.device, p.Mask)
	return tensor.Of[uint64](host), err
}
