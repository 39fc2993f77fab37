package model

import (
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// SquaredNorm stores sums of squares of gradients in out, one F64 for each block of gradients (see
// NormBlocks). out must be zero before. First come the blocks of gradients that are the same on all
// replicas; in a sliced layer, of this replica's slice. Then come the blocks of this replica's own
// gradients. A borrowed gradient counts with its owner. The squared norm is the sum of the blocks in
// their order.
func (l *Layer) SquaredNorm(x *Exec, out tensor.Mem) {
	if len(l.updated) == 0 {
		return
	}
	hi := min(l.hi, l.shared)
	blocks := int64(kernel.SquareBlocks(hi-l.lo)) * tensor.F64.Size()
	x.Backend.SumSquares(x.Stream, out.Span(0, blocks), span(l.g, l.dtype.Wide(), l.lo, hi), hi-l.lo)
	if exact := l.exact(); exact != nil {
		for _, p := range exact {
			n := int64(kernel.SquareBlocks(p.Stored())) * tensor.F64.Size()
			x.Backend.SumSquares(x.Stream, out.Span(blocks, n), p.G, p.Stored())
			blocks += n
		}
	} else if l.own > l.shared {
		x.Backend.SumSquares(x.Stream, out.Span(blocks, out.Bytes-blocks), span(l.g, l.dtype.Wide(), l.shared, l.own), l.own-l.shared)
	}
}

// NormBlocks returns how many F64 SquaredNorm stores on a replica: of gradients that are the same on
// all replicas, and of the replica's own.
func (l *Layer) NormBlocks(replica int) (shared, own int) {
	lo, hi := 0, l.shared
	if l.Sliced() {
		lo, hi = sliceOf(l.shared, replica, l.config.Shards)
	}
	own = kernel.SquareBlocks(l.own - l.shared)
	if exact := l.exact(); exact != nil {
		own = 0
		for _, p := range exact {
			own += kernel.SquareBlocks(p.Stored())
		}
	}
	return kernel.SquareBlocks(hi - lo), own
}

// exact returns the replica's own parameters whose products add up exactly.
func (l *Layer) exact() (list []*Param) {
	for _, p := range l.params {
		if p.Own && p.Exact {
			list = append(list, p)
		}
	}
	return list
}

// AddPieceNorms adds the squared norm of each piece that this replica owns to norms, by Param.Piece.
// blocks are those that SquaredNorm stored for the replica's own gradients. A piece's norm has the
// same bits wherever the piece lies. AddPieceNorms reports whether this replica owns pieces.
func (l *Layer) AddPieceNorms(norms, blocks []float64) bool {
	exact := l.exact()
	for _, p := range exact {
		n := kernel.SquareBlocks(p.Stored())
		for _, x := range blocks[:n] {
			norms[p.Piece] += x
		}
		blocks = blocks[n:]
	}
	return exact != nil
}
