package model

import (
	"fmt"
	"slices"

	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// check returns an error unless the header describes parameters of the layer. The header may come
// from a file, and kernels trust it.
func (h header) check(c Config, description Description, t tensor.DType) error {
	l := outline(c, description, header{Layer: h.Layer}, t)
	params := l.params
	if _, tuned := l.Tuning(); h.Threshold != nil && !tuned {
		return fmt.Errorf("a threshold of a layer that has none")
	}
	if h.Updates < 0 {
		return fmt.Errorf("%d updates", h.Updates)
	}
	for _, i := range h.Frozen {
		if i < 0 || i >= len(params) {
			return fmt.Errorf("parameter %d is frozen, there are %d", i, len(params))
		}
	}
	if h.Formats == nil && h.NNZ == nil {
		return nil // all are dense
	}
	if len(h.Formats) != len(params) || len(h.NNZ) != len(params) {
		return fmt.Errorf("formats of %d parameters and entries of %d, want %d", len(h.Formats), len(h.NNZ), len(params))
	}
	for i, p := range params {
		f, n, all := h.Formats[i], h.NNZ[i], p.Rows*p.Cols
		switch {
		case f > BlockCSR || f != Dense && !p.Prunable():
			return fmt.Errorf("%s: format %d", p.Name, uint8(f))
		case n < 0 || n > all || f == Dense && n != all:
			return fmt.Errorf("%s: %d entries of a %v matrix of %d", p.Name, n, f, all)
		case f == BlockCSR && (p.Rows%kernel.Block != 0 || p.Cols%kernel.Block != 0):
			return fmt.Errorf("%s: blocks of %d in a matrix of %d x %d", p.Name, kernel.Block, p.Rows, p.Cols)
		}
	}
	return nil
}

// CheckStructure returns an error unless masks and CSR structures are consistent: the header's number
// of entries, each inside its matrix. Kernels do not check this. Call CheckStructure after Restore,
// once the memory is written, if it comes from a file. No work on the layer may be under way.
func (l *Layer) CheckStructure() error {
	for _, p := range l.params {
		var err error
		switch p.Format {
		case Masked:
			err = l.checkMask(p)
		case CSR, BlockCSR:
			err = l.checkCSR(p)
		}
		if err != nil {
			return fmt.Errorf("layer %d (%s): %s: %w", l.ID, l.Name, p.Name, err)
		}
	}
	return nil
}

func (l *Layer) checkMask(p *Param) error {
	mask, err := l.Mask(p)
	if err != nil {
		return err
	}
	if n, all := mask.Count(), p.Rows*p.Cols; n != p.NNZ || all%64 != 0 && mask[all/64]>>(all%64) != 0 {
		return fmt.Errorf("mask of %d entries, want %d among %d", n, p.NNZ, all)
	}
	return nil
}

func (l *Layer) checkCSR(p *Param) error {
	rows, columns, err := l.Structure(p)
	if err != nil {
		return err
	}
	if rows[0] != 0 || int(rows[p.Rows]) != p.NNZ {
		return fmt.Errorf("rows from entry %d to %d, want 0 to %d", rows[0], rows[p.Rows], p.NNZ)
	}
	for r := range p.Rows {
		lo, hi := int(rows[r]), int(rows[r+1])
		if lo > hi || hi > p.NNZ {
			return fmt.Errorf("row %d has entries %d to %d of %d", r, lo, hi, p.NNZ)
		}
		for i, before := lo, int32(-1); i < hi; i++ {
			if at := columns[i]; at <= before || int(at) >= p.Cols {
				return fmt.Errorf("row %d has column %d behind %d, of %d", r, at, before, p.Cols)
			}
			before = columns[i]
		}
	}
	if p.Format == BlockCSR {
		return checkBlocks(p, rows, columns)
	}
	return nil
}

// checkBlocks returns an error unless the entries, which are valid CSR, are whole blocks.
func checkBlocks(p *Param, rows, columns []int32) error {
	for r := range p.Rows {
		first := r / kernel.Block * kernel.Block // of the block's rows, which all have the same columns
		same := slices.Equal(columns[rows[r]:rows[r+1]], columns[rows[first]:rows[first+1]])
		same = same && (rows[r+1]-rows[r])%kernel.Block == 0
		for i := rows[r]; same && i < rows[r+1]; i++ {
			in := (i - rows[r]) % kernel.Block // the block
			same = columns[i-in]%kernel.Block == 0 && columns[i] == columns[i-in]+in
		}
		if !same {
			return fmt.Errorf("row %d has a part of a block of %d x %d", r, kernel.Block, kernel.Block)
		}
	}
	return nil
}
