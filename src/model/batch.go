package model

import (
	"errors"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Batch is the tokens of one microbatch that are there, sequence by sequence.
// Memory of the backend's space lasts as long as the batch is worked on.
type Batch struct {
	Tokens    int // that are there
	Queries   int // the first of these are computed; of the others there are only keys and values
	Capacity  int // that buffers have room for
	Sequences int
	Longest   int        // tokens of the longest sequence
	Offsets   tensor.Mem // I32 (Sequences+1): where sequences begin, and Tokens
	Positions tensor.Mem // I32 (Tokens): of each token in its sequence
	Index     tensor.Mem // I32 (Tokens): of each in the full microbatch, ascending; ^ that of keys-only tokens; absent of the full one
	Work      Work       // of the layer that the batch enters; nil if it has none
	subset    *Subset    // that the batch is; nil of a full one
}

// Leaves returns the batch that leaves the layer that b enters, once the layer's forward
// is done.
func (b *Batch) Leaves() *Batch {
	if b.Work != nil {
		return b.Work.Leaves()
	}
	return b
}

// Worked returns how many tokens the layer computes that b enters, once the layer's forward
// is done.
func (b *Batch) Worked() int {
	if b.Work != nil {
		return b.Work.Worked()
	}
	return b.Computes()
}

// Expected returns the share of the steps in which the layer computes tokens that b enters.
func (b *Batch) Expected() float64 {
	if b.Work != nil {
		return b.Work.Expected()
	}
	return 1
}

// Computes returns the tokens of a batch that are computed. A keys-only token, with its keys and
// values alone, counts as a sixth: two of a block's twelve products.
func (b *Batch) Computes() int { return b.Queries + b.KeysOnly()/6 }

// OnHost returns Index on the host, which lasts as long as the batch.
func (b *Batch) OnHost() tensor.Mem {
	if b.subset == nil {
		return tensor.Mem{}
	}
	return b.subset.host.Span(0, b.Index.Bytes)
}

// TokensOf returns how many tokens of a sequence are there.
func (b *Batch) TokensOf(x *Exec, sequence int) int {
	if b.subset == nil {
		return x.T
	}
	offsets := tensor.Of[int32](b.subset.host)[2*x.N():]
	return int(offsets[sequence+1] - offsets[sequence])
}

// KeysOnly returns how many tokens, the last of the batch, have only keys and values.
func (b *Batch) KeysOnly() int { return b.Tokens - b.Queries }

// At returns where a token was in the full microbatch.
func (b *Batch) At(token int) int32 {
	if b.Index.IsZero() {
		return int32(token)
	}
	return placeOf(tensor.Of[int32](b.OnHost())[token])
}

// Pick returns the data of the tokens that are computed from those of the full
// microbatch, until the next pick.
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

// Subset is a batch of some tokens of a microbatch, or of all, and its memory.
// Sequences without tokens stay in it, empty.
type Subset struct {
	Batch
	X            *Exec
	memory, host tensor.Mem // SubsetBytes: Index, Positions and Offsets, at capacity
	picked       []int32
	entered      Batch        // what the subset was selected from
	copied       device.Event // host is on the device; nil before the first time
	marks        marks        // of the batch, where tokens of it are keys-only
}

// SubsetBytes returns the memory of a subset, on the device and on the host.
func (x *Exec) SubsetBytes() int64 { return int64(2*x.N()+x.B+1) * tensor.I32.Size() }

// NewSubset returns a subset with its memory.
func NewSubset(x *Exec, room Room) *Subset {
	bytes := x.SubsetBytes()
	return &Subset{X: x, memory: room.OnDevice(bytes), host: room.OnHost(bytes)}
}

// enter returns b as it enters a part that selects s from it by the Work w.
func (s *Subset) EnterBy(b *Batch, w Work) *Batch {
	s.entered = *b
	s.entered.Work = w
	return &s.entered
}

// Enter returns b as it enters a part that selects s from it.
func (s *Subset) Enter(b *Batch) *Batch { return s.EnterBy(b, s) }

// Skip makes the subset empty, as the batch that entered is.
func (s *Subset) Skip() error { return s.Copy(&s.entered) }

// Leaves returns the subset.
func (s *Subset) Leaves() *Batch { return &s.Batch }

// Worked returns the computed tokens of the batch that entered.
func (s *Subset) Worked() int { return s.entered.Computes() }

// Expected returns 1.
func (s *Subset) Expected() float64 { return 1 }

// Repeats reports false: which tokens leave depends on data.
func (s *Subset) Repeats() bool { return false }

// Room returns memory of the host, I32 (capacity), for the Index of the batch that
// Select makes. It waits until the device has that of the batch before.
func (s *Subset) Room() (tensor.Mem, error) {
	if s.copied != nil {
		if err := s.copied.Wait(); err != nil {
			return tensor.Mem{}, err
		}
	}
	return s.host.Span(0, int64(s.X.N())*tensor.I32.Size()), nil
}

var errOrder = errors.New("model: the tokens of a batch do not ascend in the full microbatch")

// Select makes the batch the tokens whose Index is in Room.
func (s *Subset) Select(tokens int) error {
	x := s.X
	n, index := x.N(), tensor.Of[int32](s.host)
	if tokens == n && !x.Propagates {
		s.Batch = x.Full
		return nil
	}
	index, positions, offsets := index[:tokens], index[n:n+tokens], index[2*n:]
	clear(offsets)
	last, longest, keysOnly := int32(-1), int32(0), 0
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
		positions[i] = at % int32(x.T)
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

// Copy makes the subset the same tokens as b.
func (s *Subset) Copy(b *Batch) error {
	room, err := s.Room()
	if err != nil {
		return err
	}
	copy(tensor.Of[byte](room), tensor.Of[byte](b.OnHost()))
	return s.Select(b.Tokens)
}

// RowsOf returns count rows of n, from a first one on.
func RowsOf(m tensor.Mem, n, first, count int) tensor.Mem {
	row := m.Bytes / int64(n)
	return m.Span(int64(first)*row, int64(count)*row)
}
