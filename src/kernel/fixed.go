package kernel

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// FixedUnit is how many units of a fixed-point number make 1: a unit is 2^-50. In I64 such numbers
// are below 2^13, more than any gradient in training that goes well. Float32 numbers of at least
// 2^-27 are multiples of a unit, so they are added without rounding.
const FixedUnit = 1 << 50

// FixedWords returns how many I64 n fixed-point sums take, n + 2: the n sums, then one bound on the
// absolute values of all sums, then one more word. The GPU backend uses the last word during a call
// and leaves it 0. See Backend.AccumulateFixed.
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
