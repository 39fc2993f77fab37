package model

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// What the tests of this package, which are outside of it, see of its inside.

type Header = header

const (
	HeaderSection    = headerSection
	ReferenceSection = referenceSection
)

var (
	CheckBlocks = checkBlocks
	Outlined    = outline
	Wide        = wide
	Span        = span
	SliceOf     = sliceOf
)

func (l *Layer) All() int                                     { return l.all }
func (l *Layer) Weight() tensor.Mem                           { return l.w }
func (l *Layer) Gradient() tensor.Mem                         { return l.g }
func (l *Layer) Room(p *Param) int                            { return l.room(p) }
func (l *Layer) Restored(dst tensor.Mem) error                { return l.restored(dst) }
func (l *Layer) ReferenceSize() (int, int64)                  { return l.referenceSize() }
func (l *Layer) Allocate(d device.Device) error               { l.device = d; return l.allocate() }
func (l *Layer) Place() (Config, device.Device, tensor.DType) { return l.config, l.device, l.dtype }

func (l *Layer) Shared() int            { return l.shared }
func (p *Param) RowLengths() (int, int) { return p.rows() }

func (s *Subset) Host() tensor.Mem { return s.host }

// Logits returns what a head, or a slice of it, multiplies, and the rows of the vocabulary.
func Logits(l *Layer, x *Exec, b *Batch, s Saved) (normed, w tensor.Mem, hidden, lo, rows int) {
	h := l.Parts[0].(*head)
	return h.saved(x, x.Cut(b, s.Kept)).normed, h.token.W, h.hidden, h.lo, h.rows
}

// OwnMLP returns a block's MLP of whose first matrix each replica has its own.
func OwnMLP(c Config, block int) Part {
	m := newFeedForward(c, block)
	m.up.W.Own, m.up.B.Own = true, true
	return m
}
