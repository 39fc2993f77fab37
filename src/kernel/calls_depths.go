package kernel

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

func (k *Calls) TakeTokens(s device.Stream, d Depths, taken, readings, dlogits, dguesses, logits, guesses, offsets tensor.Mem, n, b int) {
	k.pending.Depths = d
	k.run(s, TakeTokens, Dims{N: n, B: b}, taken, readings, dlogits, dguesses, logits, guesses, offsets)
}

func (k *Calls) ListTokens(s device.Stream, d Depths, rows, factors, listed, ends, taken, logits, positions, offsets tensor.Mem, n, b, places int) {
	k.pending.Depths = d
	k.run(s, ListTokens, Dims{N: n, B: b, K: places}, rows, factors, listed, ends, taken, logits, positions, offsets)
}
