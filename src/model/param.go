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

// Role is what the optimizer and pruning do with a parameter. Parameters lie
// in their layer's slabs in the order of roles.
type Role uint8

const (
	rolePrunable Role = iota // a block's matrix: pruned, decayed
	RoleDecayed              // an embedding: decayed
	RolePlain                // a norm or a bias: neither
	RoleBorrowed             // a copy of tied weights: updated by its owner
)

// Param is one parameter of a layer: (Rows, Cols), or (Rows) with Cols 1. The
// spans point into the layer's slabs; W, G, M and V hold Stored() elements.
type Param struct {
	Name       string
	Weight     string // name in the whole model, which slices of a matrix share, and a borrowed one with its owner
	File       string // of Weight in files of other programs; empty: they have none
	Within     string // Name in a part around this one that has a parameter of the same name; empty: none has
	Rows, Cols int
	First, Of  int // a slice holds rows [First, First+Rows) of Of; 0 of anything else
	Format     Format
	NNZ        int   // kept entries; Rows·Cols if Dense
	Frozen     bool  // not trained: no gradient, not in the norm, not updated (see Layer.Freeze)
	Apart      bool  // its gradient follows from the layer's forward alone, and needs no backward for inputs
	Own        bool  // each replica has its own: gradients are not summed over replicas, and all replicas' count in the norm
	Copy       bool  // of another replica's own: it has no gradient, master or moments here, and the owner updates it
	Piece      int   // of the layer, which replicas hold as Config.Pieces says
	Holders    []int // replicas that hold the piece, the owner first
	Exact      bool  // products add up in Sum to the same bits wherever they are made; G is Sum rounded, once per step

	W, G, M, V     tensor.Mem // weight, gradient, first and second moment (no moments if borrowed)
	Master         tensor.Mem // weight before it was rounded to W's type; absent if it is not, or borrowed
	From           int        // element of W that Master, M and V begin with: not 0 only where replicas share these out
	Mask           tensor.Mem // Masked: U64, bit i%64 of word i/64
	RowPtr, ColIdx tensor.Mem // CSR and BlockCSR
	Sum            tensor.Mem // Exact: fixed-point numbers, see kernel.Backend.AccumulateFixed

	role      Role
	Deviation float64 // of the initial normal distribution; negative: constant 1; 0: constant 0
	block     int     // keys the random numbers, with Name; -1 outside the blocks
}

// Place is where in the model parameters are.
type Place struct {
	Layer string // that their Weight begins with: halves of a block share the block's, slices of the head the head's
	Block int    // -1 outside the blocks
}

// InBlock returns the place of a block's parameters.
func InBlock(block int) Place { return Place{fmt.Sprintf("block.%d", block), block} }

// Param returns a parameter of this place.
func (at Place) Param(name string, rows, cols int, r Role, deviation float64) *Param {
	return &Param{
		Name: name, Weight: at.Layer + "/" + name, File: at.Layer + "/" + name, Rows: rows, Cols: cols,
		role: r, Deviation: deviation, block: at.Block,
	}
}

// Wide returns the weights in the wide type: the master's if there is one.
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

// Shape returns the shape of the whole tensor that this is, or is a slice of: of
// one dimension if it is a norm or a bias.
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
