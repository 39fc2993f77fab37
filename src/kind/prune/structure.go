package prune

import (
	"math"

	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// structure defines the units of a matrix: the elements that are pruned together. A unit is whole
// or pruned.
type structure interface {
	// units returns how many a matrix has.
	units(p *model.Param) int
	// whole returns the number of whole units at a sparsity, of the units of all `elements`
	// elements. left returns the number of whole units when `left` elements are left. elements
	// returns the number of elements left when the given number of units are whole.
	whole(sparsity float64, elements int64) int64
	left(elements, left int64) int64
	elements(units, whole int64) int64
	// score sets the scores, wide, of a matrix's units; those with the largest stay.
	score(x *model.Exec, scores tensor.Mem, p *model.Param)
	// mask sets the mask of a matrix's elements from that of its whole units.
	mask(x *model.Exec, mask, whole tensor.Mem, p *model.Param)
	// sparse is the format of matrices that are stored without their zeros.
	sparse() model.Format
}

// structures are those of prune.structure.
var structures = map[string]structure{"unstructured": single{}, "block32": blocks{}, "2:4": pairs{}}

// single has each stored value for a unit: its magnitude is the score, its mask the
// elements'.
type single struct{}

func (single) units(p *model.Param) int { return p.Stored() }
func (single) whole(sparsity float64, elements int64) int64 {
	return int64(math.Round((1 - sparsity) * float64(elements)))
}
func (single) left(_, left int64) int64                               { return left }
func (single) elements(_, whole int64) int64                          { return whole }
func (single) score(*model.Exec, tensor.Mem, *model.Param)            {}
func (single) mask(*model.Exec, tensor.Mem, tensor.Mem, *model.Param) {}
func (single) sparse() model.Format                                   { return model.CSR }

// blocks has blocks of 32 x 32 elements for units (Gray et al. 2017), scored by the sum of
// their squares, as Narang et al. 2017 prune blocks by one number for each.
type blocks struct{}

const blockElements = kernel.Block * kernel.Block

func (blocks) units(p *model.Param) int { return p.Stored() / blockElements }
func (blocks) whole(sparsity float64, elements int64) int64 {
	return int64(math.Round((1 - sparsity) * float64(elements) / blockElements))
}
func (blocks) left(_, left int64) int64      { return left / blockElements }
func (blocks) elements(_, whole int64) int64 { return whole * blockElements }
func (blocks) sparse() model.Format          { return model.BlockCSR }
func (blocks) score(x *model.Exec, scores tensor.Mem, p *model.Param) {
	x.Backend.BlockScores(x.Stream, scores, p.Wide(), p.Mask, p.RowPtr, p.Cols/kernel.Block, p.Rows/kernel.Block, p.Stored()/blockElements)
}
func (blocks) mask(x *model.Exec, mask, whole tensor.Mem, p *model.Param) {
	x.Backend.BlockMask(x.Stream, mask, whole, p.RowPtr, p.Cols/kernel.Block, p.Rows/kernel.Block, p.Stored()/blockElements)
}

// pairs has units of four neighbours of a row. A pruned unit keeps the two elements of the largest
// magnitude (Mishra et al. 2021). Its score is the magnitude that pruning removes. So a schedule
// prunes the units first that lose least.
type pairs struct{}

func (pairs) units(p *model.Param) int { return p.Rows * p.Cols / 4 }
func (pairs) whole(sparsity float64, elements int64) int64 {
	return int64(math.Round((1 - 2*sparsity) * float64(elements/4)))
}
func (pairs) left(elements, left int64) int64   { return (left - elements/2) / 2 }
func (pairs) elements(units, whole int64) int64 { return 2*units + 2*whole }
func (pairs) sparse() model.Format              { return model.CSR }
func (pairs) score(x *model.Exec, scores tensor.Mem, p *model.Param) {
	x.Backend.PairScores(x.Stream, scores, p.Wide(), p.Mask, p.Stored()/4)
}
func (pairs) mask(x *model.Exec, mask, whole tensor.Mem, p *model.Param) {
	x.Backend.PairMask(x.Stream, mask, p.Wide(), p.Mask, whole, p.Stored()/4)
}
