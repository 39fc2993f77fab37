package model

import (
	"errors"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Batch describes the tokens of one microbatch that a layer gets, sequence by sequence. Tokens may be
// missing: they left at an exit or pass by a block. A keys-only token left at an exit, but others
// still attend to its keys and values. A batch's memory lasts while the microbatch is in flight.
type Batch struct {
	Tokens    int        // number of tokens in the batch
	Queries   int        // the first Queries tokens are computed; the others are keys-only
	Capacity  int        // number of tokens that buffers have room for
	Sequences int        // number of sequences, empty ones included
	Longest   int        // tokens of the longest sequence
	Offsets   tensor.Mem // I32 (Sequences+1): first token of each sequence, and Tokens at the end
	Positions tensor.Mem // I32 (Tokens): position of each token in its sequence, from 0
	// Index is I32 (Tokens): the number i of each token in the full microbatch, ascending. A keys-only
	// token has ^i, the bitwise complement of i. Index is absent in the full microbatch.
	Index  tensor.Mem
	Work   Work    // of the layer that gets the batch; nil: the layer has none
	subset *Subset // that the batch is; nil of a full one
}

// Leaves returns the output batch of the layer that gets b. It is known after the layer's forward.
func (b *Batch) Leaves() *Batch {
	if b.Work != nil {
		return b.Work.Leaves()
	}
	return b
}

// Worked returns the number of tokens that the layer which gets b computed, as Computes counts them.
// It is known after the layer's forward. It may be below Computes: a layer may skip tokens.
func (b *Batch) Worked() int {
	if b.Work != nil {
		return b.Work.Worked()
	}
	return b.Computes()
}

// Expected returns the probability, 0 to 1, that the layer which gets b computes it. It is below 1
// only where a kind draws at random which layers run.
func (b *Batch) Expected() float64 {
	if b.Work != nil {
		return b.Work.Expected()
	}
	return 1
}

// Computes returns the number of computed tokens. A keys-only token counts as a sixth of a token,
// because keys and values are two of a block's twelve products.
func (b *Batch) Computes() int { return b.Queries + b.KeysOnly()/6 }

// OnHost returns a copy of Index in host memory. It is valid as long as the batch.
func (b *Batch) OnHost() tensor.Mem {
	if b.subset == nil {
		return tensor.Mem{}
	}
	return b.subset.host.Span(0, b.Index.Bytes)
}

// TokensOf returns how many tokens of a sequence are in the batch.
func (b *Batch) TokensOf(x *Exec, sequence int) int {
	if b.subset == nil {
		return x.T
	}
	offsets := tensor.Of[int32](b.subset.host)[2*x.N():]
	return int(offsets[sequence+1] - offsets[sequence])
}

// KeysOnly returns the number of keys-only tokens, which are the last of the batch.
func (b *Batch) KeysOnly() int { return b.Tokens - b.Queries }

// At returns the number that a token of the batch has in the full microbatch.
func (b *Batch) At(token int) int32 {
	if b.Index.IsZero() {
		return int32(token)
	}
	return placeOf(tensor.Of[int32](b.OnHost())[token])
}

// Pick returns the elements of data that belong to the computed tokens. data has one element per
// token of the full microbatch. The result is valid until the next call of Pick.
func (b *Batch) Pick(data []int32) []int32 {
	if b.Index.IsZero() {
		return data
	}
	if b.subset.picked == nil {
		b.subset.picked = make([]int32, b.subset.X.N())
	}
	picked := b.subset.picked[:b.Queries]
	for i, at := range tensor.Of[int32](b.OnHost())[:len(picked)] {
		picked[i] = data[at]
	}
	return picked
}

// Subset is the Work of a part that selects tokens: the output batch, and its memory. Its calls for
// each microbatch are Enter (or EnterBy) before the forward, then Room and Select, or Skip. Sequences
// without tokens stay in the batch, empty.
type Subset struct {
	Batch
	X            *Exec
	memory, host tensor.Mem // SubsetBytes: Index, Positions and Offsets, at capacity
	picked       []int32
	entered      Batch        // what the subset was selected from
	copied       device.Event // host is on the device; nil before the first time
	marks        marks        // of the batch, where tokens of it are keys-only
}

// SubsetBytes returns the bytes of a subset's memory: as many on the device as on the host.
func (x *Exec) SubsetBytes() int64 { return int64(2*x.N()+x.B+1) * tensor.I32.Size() }

// NewSubset returns a subset with memory that it takes from room.
func NewSubset(x *Exec, room Room) *Subset {
	bytes := x.SubsetBytes()
	return &Subset{X: x, memory: room.OnDevice(bytes), host: room.OnHost(bytes)}
}

// EnterBy notes b as the input batch and returns a copy of b whose Work is w. A Work that embeds a
// Subset passes itself as w.
func (s *Subset) EnterBy(b *Batch, w Work) *Batch {
	s.entered = *b
	s.entered.Work = w
	return &s.entered
}

// Enter notes b as the input batch and returns a copy of b whose Work is s.
func (s *Subset) Enter(b *Batch) *Batch { return s.EnterBy(b, s) }

// Skip makes the output batch empty, for an input batch without tokens.
func (s *Subset) Skip() error { return s.Copy(&s.entered) }

// Leaves returns the output batch.
func (s *Subset) Leaves() *Batch { return &s.Batch }

// Worked returns Computes of the input batch.
func (s *Subset) Worked() int { return s.entered.Computes() }

// Expected returns 1.
func (s *Subset) Expected() float64 { return 1 }

// Repeats reports false: which tokens leave depends on data.
func (s *Subset) Repeats() bool { return false }

// Room returns host memory, I32 (capacity), to write the output batch's Index into before Select. It
// waits until the Index of the previous batch has been copied to the device.
func (s *Subset) Room() (tensor.Mem, error) {
	if s.copied != nil {
		if err := s.copied.Wait(); err != nil {
			return tensor.Mem{}, err
		}
	}
	return s.host.Span(0, int64(s.X.N())*tensor.I32.Size()), nil
}

var errOrder = errors.New("model: the tokens of a batch do not ascend in the full microbatch")

// Select makes the output batch from the first `tokens` numbers in Room, and begins to copy it to the
// device. It returns an error if the numbers are not those of a Batch.Index.
func (s *Subset) Select(tokens int) error {
	x := s.X
	n, index := x.N(), tensor.Of[int32](s.host)
	if tokens == n && !x.Propagates {
		s.Batch = x.Full
		return nil
	}
	index, positions, offsets := index[:tokens], index[n:n+tokens], index[2*n:]
	clear(offsets)
	before, last, longest, keysOnly := int32(0), int32(-1), int32(0), 0
	if x.Text != nil {
		before = int32(x.Text.tokens)
	}
	for i, at := range index {
		switch {
		case at < 0:
			keysOnly, at = keysOnly+1, ^at
		case at <= last || keysOnly > 0:
			return errOrder
		default:
			last = at
		}
		if int(at) >= n {
			return errOrder
		}
		positions[i] = before + at%int32(x.T)
		offsets[int(at)/x.T+1]++
	}
	for b := range x.B {
		longest = max(longest, offsets[b+1])
		offsets[b+1] += offsets[b]
	}
	if keysOnly > 0 && tokens < n {
		return errors.New("model: some tokens of a batch are keys-only, and others are not there")
	}
	s.Batch = Batch{Tokens: tokens, Queries: tokens - keysOnly, Capacity: n, Sequences: x.B, Longest: int(longest), subset: s}
	s.marks.made = false
	for _, part := range []struct {
		dst          *tensor.Mem
		first, count int
	}{{&s.Index, 0, tokens}, {&s.Positions, n, tokens}, {&s.Offsets, 2 * n, x.B + 1}} {
		off, bytes := int64(part.first)*tensor.I32.Size(), int64(part.count)*tensor.I32.Size()
		*part.dst = s.memory.Span(off, bytes)
		x.Stream.Copy(*part.dst, s.host.Span(off, bytes))
	}
	s.copied = x.Stream.Record(s.copied)
	return nil
}

// Copy makes the output batch of the same tokens as b.
func (s *Subset) Copy(b *Batch) error {
	room, err := s.Room()
	if err != nil {
		return err
	}
	copy(tensor.Of[byte](room), tensor.Of[byte](b.OnHost()))
	return s.Select(b.Tokens)
}

// RowsOf returns rows [first, first+count) of memory m that has n rows of equal size.
func RowsOf(m tensor.Mem, n, first, count int) tensor.Mem {
	row := m.Bytes / int64(n)
	return m.Span(int64(first)*row, int64(count)*row)
}
