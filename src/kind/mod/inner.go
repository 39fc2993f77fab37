package mod

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// inner is the Work of a block that routes tokens: the batch of the tokens that the block
// takes. The batch has no Index: only the device knows which tokens these are.
type inner struct {
	batch        model.Batch
	inside       *model.Batch // batch, as it enters the block
	block        model.Work   // of the block; nil if the block has none
	x            *model.Exec
	routed       *routed
	entered      model.Batch
	origin       *model.Batch // that the layer was entered by
	forced       []int32      // of each token whether it is taken by force
	taken        [1]float64   // how many are
	memory, host tensor.Mem   // Positions and Offsets, at capacity; on the host Offsets
}

// offsetsBytes returns the size of a batch's Offsets.
func offsetsBytes(x *model.Exec) int64 { return int64(x.B+1) * tensor.I32.Size() }

// Enter returns b as it enters the layer. The layer takes of each sequence the number that
// Capacity says, unless counts vary: then the forward sets how many.
func (in *inner) Enter(b *model.Batch) *model.Batch {
	in.origin, in.entered = b, *b
	in.entered.Work = in
	in.set(func(sequence int) int {
		if in.routed.guesses(in.x) {
			return 0
		}
		return kernel.First(in.routed.Capacity, b.TokensOf(in.x, sequence))
	}, 0)
	return &in.entered
}

// Skip does nothing: the layer takes none of no tokens.
func (in *inner) Skip() error { return nil }

// Leaves returns the batch that entered.
func (in *inner) Leaves() *model.Batch { return in.origin }

// Worked returns the tokens that the block computes.
func (in *inner) Worked() int { return in.inside.Worked() }

// Expected returns that of the block.
func (in *inner) Expected() float64 { return in.inside.Expected() }

// Repeats reports whether as many tokens are taken of every batch with equal fields: only
// of full microbatches.
func (in *inner) Repeats() bool {
	return in.entered.Index.IsZero() && (in.block == nil || in.block.Repeats())
}

// positions returns memory of the device for the Positions of the given number of tokens.
func (in *inner) positions(tokens int) tensor.Mem {
	return in.memory.Span(0, int64(tokens)*tensor.I32.Size())
}

// offsets returns memory of the device for Offsets.
func (in *inner) offsets() tensor.Mem {
	bytes := offsetsBytes(in.x)
	return in.memory.Span(in.memory.Bytes-bytes, bytes)
}

// set makes the batch of the tokens that enter the block. tokensOf returns their number by
// sequence. The last keysOnly tokens are keys-only.
func (in *inner) set(tokensOf func(sequence int) int, keysOnly int) {
	b := model.Batch{Capacity: in.routed.room(in.x), Sequences: in.entered.Sequences, Offsets: in.offsets()}
	for s := range b.Sequences {
		tokens := tokensOf(s)
		b.Tokens, b.Longest = b.Tokens+tokens, max(b.Longest, tokens)
	}
	b.Queries, b.Positions = b.Tokens-keysOnly, in.positions(b.Tokens)
	in.batch, in.inside = b, &in.batch
	if in.block != nil {
		in.inside = in.block.Enter(in.inside)
	}
}

// read waits for the Offsets that are on the device, and makes the batch by them. rows are the
// tokens' rows in the batch that entered. Those of keys-only tokens are read from the device too.
func (in *inner) read(rows tensor.Mem) error {
	in.x.Stream.Copy(in.host, in.offsets())
	if err := in.x.Stream.Sync(); err != nil {
		return err
	}
	offsets, keysOnly := tensor.Of[int32](in.host), 0
	if in.entered.KeysOnly() > 0 {
		host, err := device.Read(in.x.Device, rows)
		if err != nil {
			return err
		}
		for _, row := range tensor.Of[int32](host)[:offsets[len(offsets)-1]] {
			if int(row) >= in.entered.Queries {
				keysOnly++
			}
		}
	}
	in.set(func(sequence int) int { return int(offsets[sequence+1] - offsets[sequence]) }, keysOnly)
	return nil
}
