package kernel

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// FixedUnit is 1 of fixed-point numbers in units of 2^-50. I64 holds numbers below 2^13, more
// than any gradient that training survives, and keeps what float32 rounds off numbers down to
// 2^-26.
const FixedUnit = 1 << 50

// FixedWords returns how many I64 a sum of n fixed-point numbers takes: the numbers; a bound on
// the absolute value of each, which is the largest I64 where it would be more; and a word for
// the GPU, 0 between calls.
func FixedWords(n int) int { return n + 2 }

func (k *Calls) AccumulateFixed(s device.Stream, sum, x tensor.Mem, n int) {
	k.run(s, AccumulateFixed, Dims{N: n}, sum, x)
}

func (k *Calls) AddFixed(s device.Stream, sum, other tensor.Mem, n int) {
	k.run(s, AddFixed, Dims{N: n}, sum, other)
}

func (k *Calls) RoundFixed(s device.Stream, out, sum tensor.Mem, n int) {
	k.run(s, RoundFixed, Dims{N: n}, out, sum)
}
