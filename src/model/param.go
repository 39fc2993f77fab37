package model

import (
	"fmt"

	"dynmo/src/tensor"
)

// Format is how a matrix is stored.
type Format uint8

const (
	Dense    Format = iota // Rows·Cols values
	Masked                 // Rows·Cols values, zero where the bit mask is 0
	CSR                    // the kept values of compressed rows
	BlockCSR               // CSR of whole blocks of kernel.Block x kernel.Block
)

// String returns "dense", "masked", "csr" or "block csr".
func (f Format) String() string { return [...]string{"dense", "masked", "csr", "block csr"}[f] }

// Sparse reports whether only the kept values are stored, in compressed rows.
func (f Format) Sparse() bool { return f >= CSR }

// Role says whether a parameter is pruned and whether weight decay applies. Parameters lie in their
// layer's slabs in the order of roles. The first role, of the matrices of blocks, has no exported
// name: Config.NewLinear gives it. Such matrices are pruned and decayed.
type Role uint8

const (
	rolePrunable Role = iota // a block's matrix: pruned, decayed
	RoleDecayed              // an embedding: decayed, not pruned
	RolePlain                // a norm or a bias: neither pruned nor decayed
	RoleBorrowed             // a copy of tied weights: updated by its owner
)

// Param is one parameter of a layer: a matrix (Rows, Cols), or a vector (Rows) with Cols 1. The spans
// of memory point into the layer's slabs. W and G have Stored() elements; Master, M and V too, unless
// the layer is sliced.
type Param struct {
	Name       string
	Weight     string // name in the whole model, which slices of a matrix share, and a borrowed one with its owner
	File       string // name in files of other programs, as Weight is here; empty: these files do not have it
	Within     string // replaces Name where this part is inside another part that uses Name itself; empty: no conflict
	Rows, Cols int
	First, Of  int // a slice of the vocabulary has rows [First, First+Rows) of a matrix of Of rows; else both are 0
	Format     Format
	NNZ        int   // kept entries; Rows·Cols if Dense
	Frozen     bool  // not trained: no gradient, not in the norm, not updated (see Layer.Freeze)
	Apart      bool  // its gradient needs the layer's forward only, and no gradient from later layers
	Own        bool  // only this replica updates it: its gradient is not summed over replicas, but counts in the norm
	Copy       bool  // a copy of another replica's Own parameter: no G, Master, M or V here; the owner updates it
	Piece      int   // number of the piece, from 0, that an Own or Copy parameter belongs to
	Holders    []int // replicas that have the piece, the owner first
	Exact      bool  // gradients add up in Sum, in fixed point, so the order of additions changes no bit

	W, G, M, V     tensor.Mem // weight, gradient, first and second moment (no moments if borrowed)
	Master         tensor.Mem // weight before it was rounded to W's type; absent if it is not, or borrowed
	From           int        // element of W that Master, M and V begin with; other than 0 only if Config.Shards > 0
	Mask           tensor.Mem // Masked: U64, bit i%64 of word i/64
	RowPtr, ColIdx tensor.Mem // CSR and BlockCSR
	Sum            tensor.Mem // Exact: fixed-point sums (kernel.Backend.AccumulateFixed), rounded into G once per step

	role      Role
	Deviation float64 // of the initial normal distribution; negative: constant 1; 0: constant 0
	block     int     // keys the random numbers, with Name; -1 outside the blocks
}

// Place gives parameters their names: Place{"block.3", 3} makes weights block.3/NAME.
type Place struct {
	Layer string // prefix of Param.Weight; both halves of a block have the block's prefix, all slices of the head "head"
	Block int    // keys random draws; -1 outside the blocks
}

// InBlock returns the place of a block's parameters.
func InBlock(block int) Place { return Place{fmt.Sprintf("block.%d", block), block} }

// Param returns a parameter (rows, cols), or (rows) with cols 1, without memory. deviation is that of
// Param.Deviation.
func (at Place) Param(name string, rows, cols int, r Role, deviation float64) *Param {
	return &Param{
		Name: name, Weight: at.Layer + "/" + name, File: at.Layer + "/" + name, Rows: rows, Cols: cols,
		role: r, Deviation: deviation, block: at.Block,
	}
}

// Wide returns the weights in the wide type: Master, or W if there is no master.
func (p *Param) Wide() tensor.Mem {
	if p.Master.IsZero() {
		return p.W
	}
	return p.Master
}

// Stored returns how many values W holds.
func (p *Param) Stored() int {
	if p.Format.Sparse() {
		return p.NNZ
	}
	return p.Rows * p.Cols
}

// Shape returns the shape of the whole tensor: (out, in), or (out) of a norm or a bias. Of a slice
// it is the shape of the tensor that the slice belongs to.
func (p *Param) Shape() []int64 {
	if p.role == RolePlain {
		return []int64{int64(p.Rows)}
	}
	return []int64{int64(max(p.Rows, p.Of)), int64(p.Cols)}
}

// Borrowed reports whether another layer owns the weights.
func (p *Param) Borrowed() bool { return p.role == RoleBorrowed }

// Prunable reports whether global pruning considers the parameter.
func (p *Param) Prunable() bool { return p.role == rolePrunable }
