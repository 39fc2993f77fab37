package model

import (
	"slices"

	"dynmo/src/tensor"
)

// Choose decides which tokens of a batch go on. It writes their numbers in the batch, ascending, into
// rows, which has room for all tokens, and returns how many. inp lies on the device, and the work on
// it may not be done: a Choose function that reads inp must wait for x.Stream first.
type Choose func(x *Exec, b *Batch, inp tensor.Mem, rows []int32) (tokens int, err error)

// Selecting returns the layer with one more part at its end. The part passes on only the tokens that
// choose returns. The gradient of the other tokens is zero.
func (d Description) Selecting(choose Choose) Description {
	before := d.Makers
	d.Makers = append(slices.Clip(before), Maker{New: func() Part {
		last := before[len(before)-1].New()
		return &Selection{Passed: last.Leaves().Values, choose: choose}
	}})
	return d
}

// Selection is out = the chosen rows of inp.
type Selection struct {
	Basic
	Passed int // values per token
	choose Choose
}

func (s *Selection) Params() []*Param { return nil }
func (s *Selection) Leaves() Width    { return Width{Values: s.Passed} }
func (s *Selection) Traits() Traits   { return Traits{Selects: true, Waits: true, Once: true} }

func (s *Selection) NewWork(x *Exec, room Room) Work { return NewSubset(x, room) }

func (s *Selection) Memory(x *Exec, b *Batch, saved, _ tensor.Mem) (tensor.Mem, int64, int64) {
	c := x.Cut(b.Leaves(), saved)
	return c.Rows(s.Passed, x.Backend.DType()), c.Off, 0
}

func (s *Selection) Forward(x *Exec, b *Batch, saved, inp tensor.Mem) error {
	chosen := b.Work.(*Subset)
	room, err := chosen.Room()
	if err != nil {
		return err
	}
	index := tensor.Of[int32](room)
	tokens, err := s.choose(x, b, inp, index)
	if err != nil {
		return err
	}
	for i, row := range index[:tokens] {
		index[i] = b.At(int(row))
	}
	if err := chosen.Select(tokens); err != nil {
		return err
	}
	out, _, _ := s.Memory(x, b, saved, tensor.Mem{})
	s.CopyRows(x, b, func(some, all tensor.Mem) { x.Stream.Copy(some, all) }, out, inp)
	return nil
}

func (s *Selection) BackwardInput(x *Exec, b *Batch, _, _, _, dout, din tensor.Mem) error {
	if !din.IsZero() {
		x.Stream.Zero(din)
		s.CopyRows(x, b, func(some, all tensor.Mem) { x.Stream.Copy(all, some) }, dout, din)
	}
	return nil
}

func (s *Selection) BackwardWeight(*Exec, *Batch, tensor.Mem, tensor.Mem, tensor.Mem, tensor.Mem) error {
	return nil
}

// CopyRows calls move for runs of consecutive rows of the selected tokens: their rows in `some`, a
// tensor of the output batch, and in `all`, a tensor of the input batch b.
func (s *Selection) CopyRows(x *Exec, b *Batch, move func(some, all tensor.Mem), some, all tensor.Mem) {
	row, leaving := int64(s.Passed)*x.Backend.DType().Size(), b.Leaves()
	for from, to := 0, 0; to < leaving.Tokens; {
		for b.At(from) != leaving.At(to) {
			from++
		}
		first, count := to, int64(0)
		for to < leaving.Tokens && b.At(from) == leaving.At(to) {
			from, to, count = from+1, to+1, count+1
		}
		move(some.Span(int64(first)*row, count*row), all.Span((int64(from)-count)*row, count*row))
	}
}
