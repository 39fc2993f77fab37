package model_test

import (
	"dynmo/src/expect"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestGradientOfSelectedTokens compares every gradient with the central difference
// of the loss where layers pass on some of the tokens: of the embedding, of blocks
// and of halves of blocks, none among them.
func TestGradientOfSelectedTokens(t *testing.T) {
	for name, rows := range map[string]map[int][]int32{
		"some":         {1: {0, 1, 3, 4, 6, 9}, 2: {1, 2, 5}},
		"embedding":    {0: {0, 2, 3, 4, 5, 6, 7, 8}},
		"one sequence": {1: {5, 6, 7, 8, 9}},
		"all":          {1: {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"none":         {1: {}},
		"none of none": {1: {}, 2: {}},
	} {
		for _, half := range []bool{false, true} {
			for _, slices := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s/half=%v/slices=%d", name, half, slices), func(t *testing.T) {
					c := modeltest.Small.With(&modeltest.Selecting{Rows: rows})
					c.Tied, c.HalfGrain, c.HeadShards = true, half, slices
					ch := modeltest.New(t, c, tensor.F64)
					modeltest.Enlarge(ch.S)
					modeltest.CheckGradients(t, ch)
					if strings.HasPrefix(name, "none") && ch.Loss() != 0 {
						t.Errorf("the loss of no tokens is %v", ch.Loss())
					}
				})
			}
		}
	}
}

// TestSubset: a batch of some tokens has their sequences and positions, and knows
// them in the full microbatch.
func TestSubset(t *testing.T) {
	x := modeltest.New(t, modeltest.Small, tensor.F64).X // 2 sequences of 5 tokens
	made := func() *model.Subset {
		return model.NewSubset(x, &model.Heap{Device: x.Device})
	}
	for name, c := range map[string]struct {
		index, positions, offsets []int32
		longest                   int
	}{
		"of both":      {[]int32{0, 2, 4, 8}, []int32{0, 2, 4, 3}, []int32{0, 3, 4}, 3},
		"of the first": {[]int32{1, 2}, []int32{1, 2}, []int32{0, 2, 2}, 2},
		"of the last":  {[]int32{5, 9}, []int32{0, 4}, []int32{0, 0, 2}, 2},
		"none":         {nil, nil, []int32{0, 0, 0}, 0},
	} {
		s, other := made(), made()
		room, err := s.Room()
		expect.OK(t, err)
		copy(tensor.Of[int32](room), c.index)
		expect.OK(t, s.Select(len(c.index)))
		expect.OK(t, other.Copy(&s.Batch))
		for _, b := range []*model.Batch{&s.Batch, &other.Batch, other.Enter(&s.Batch)} {
			same := slices.Equal(tensor.Of[int32](b.Index), c.index) && slices.Equal(tensor.Of[int32](b.OnHost()), c.index) &&
				slices.Equal(tensor.Of[int32](b.Positions), c.positions) && slices.Equal(tensor.Of[int32](b.Offsets), c.offsets)
			if !same || b.Tokens != len(c.index) || b.Capacity != x.N() || b.Sequences != x.B || b.Longest != c.longest {
				t.Errorf("%s: %+v, want %+v", name, b, c)
			}
		}
		expect.OK(t, s.Copy(&x.Full))
		if s.Batch != x.Full || other.Leaves() != &other.Batch {
			t.Errorf("%s: a full subset is %+v, want %+v", name, s.Batch, x.Full)
		}
	}
	for _, index := range [][]int32{{2, 2}, {3, 1}, {-1, 0}, {0, 10}} {
		s := made()
		copy(tensor.Of[int32](s.Host()), index)
		if err := s.Select(len(index)); err == nil || !strings.Contains(err.Error(), "do not ascend") {
			t.Errorf("%v: %v", index, err)
		}
	}
}

// TestTokensOfBytes: the length of a message between layers determines its number of tokens. That
// holds also where statistics travel along and rows are shorter than a cache line.
func TestTokensOfBytes(t *testing.T) {
	x := modeltest.New(t, modeltest.Small, tensor.F64).X
	for _, w := range []model.Width{{Values: 6}, {Values: 1}, {Values: 1, Statistics: 3}, {Values: 9, Statistics: 3}} {
		for tokens := range x.N() + 1 {
			bytes := w.Bytes(x, tokens)
			if got, ok := w.Tokens(x, bytes); got != tokens || !ok {
				t.Errorf("%+v: %d bytes are %d tokens, %v; want %d", w, bytes, got, ok, tokens)
			}
			if got, ok := w.Tokens(x, bytes+1); ok {
				t.Errorf("%+v: %d bytes are %d tokens, want none", w, bytes+1, got)
			}
		}
	}
}

// TestOnlyTheLastPartSelects: a layer that would go on with another batch inside is
// refused.
func TestOnlyTheLastPartSelects(t *testing.T) {
	defer func() {
		if fault := recover(); fault != "model: a part selects tokens before the layer's last" {
			t.Errorf("%v", fault)
		}
	}()
	var notes []string
	choose := func(*model.Exec, *model.Batch, tensor.Mem, []int32) (int, error) { return 0, nil }
	some := model.Maker{New: func() model.Part { return &probe{notes: &notes} }}
	first := model.Description{Makers: []model.Maker{some}}.Selecting(choose)
	model.Outlined(modeltest.Small, model.Description{Makers: append(first.Makers, some)}, model.Header{}, tensor.F64)
}

// TestSubsetOfKeysOnly: keys-only tokens follow the others, wherever the batch is
// copied, and all are there.
func TestSubsetOfKeysOnly(t *testing.T) {
	x := modeltest.New(t, modeltest.Small, tensor.F64).X
	x.Propagates = true
	made := func(index []int32) *model.Subset {
		s := model.NewSubset(x, &model.Heap{Device: x.Device})
		copy(tensor.Of[int32](s.Host()), index)
		return s
	}
	s, other := made([]int32{1, 2, 7, ^5, ^0, ^3, ^4, ^6, ^8, ^9}), made(nil)
	expect.OK(t, s.Select(10))
	expect.OK(t, other.Copy(&s.Batch))
	for _, b := range []*model.Batch{&s.Batch, &other.Batch, other.Enter(&s.Batch)} {
		picked := b.Pick([]int32{0, 10, 20, 30, 40, 50, 60, 70, 80, 90})
		if b.Tokens != 10 || b.KeysOnly() != 7 || b.At(2) != 7 || b.At(3) != 5 || !slices.Equal(picked, []int32{10, 20, 70}) ||
			!slices.Equal(tensor.Of[int32](b.Offsets), []int32{0, 5, 10}) || b.Longest != 5 {
			t.Errorf("%+v, data %v", b, picked)
		}
	}
	for want, index := range map[string][]int32{
		"others are not there": {1, ^2}, "do not ascend": {^3, 4}, "do not ascend ": {1, ^10},
	} {
		if err := made(index).Select(len(index)); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%v: %v, want %q", index, err, want)
		}
	}
}
