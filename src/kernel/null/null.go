// Package null is a backend that does no arithmetic: calls with shapes come in, seconds on a clock
// go out. With a virtual clock it shows the time of a schedule on a device of known speed, almost
// at once.
//
// Operands are checked as everywhere, and keep their bits, except for the values that a training
// step reads. The loss of CrossEntropy, the sum of SumSquares and the pairs of AttentionHash become
// 0. All tokens go to the first experts, as long as these have room, and PlaceTokens counts the
// choices of each. TakeTokens counts the tokens that a router takes; a predictor takes none.
// ListTokens lists none. Activations, gradients, weights, moments and histograms keep their bits.
package null

import (
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// New returns the backend, on host memory with float32 elements. Each call
// moves clock by the seconds that cost gives for it; a wall clock does not
// move, and nothing ever sleeps. A nil cost makes every call free.
func New(clock *device.Clock, cost func(*kernel.Call) float64) kernel.Backend {
	return NewOf(tensor.F32, clock, cost)
}

// NewOf is New with elements of type d, for callers that only ask for sizes.
func NewOf(d tensor.DType, clock *device.Clock, cost func(*kernel.Call) float64) kernel.Backend {
	return newBackend(d, false, clock, cost)
}

// NewFused is NewOf of a backend that does two operations in one call as a GPU does, where
// elements are bfloat16.
func NewFused(d tensor.DType, clock *device.Clock, cost func(*kernel.Call) float64) kernel.Backend {
	return newBackend(d, d == tensor.BF16, clock, cost)
}

func newBackend(d tensor.DType, fused bool, clock *device.Clock, cost func(*kernel.Call) float64) kernel.Backend {
	return &backend{kernel.NewCalls(d, tensor.Host, fused, func(_ device.Stream, c *kernel.Call) {
		switch c.Op {
		case kernel.SumSquares:
			clear(tensor.Of[float64](c.Mem[0]))
		case kernel.CrossEntropy:
			tensor.Of[float64](c.Mem[0])[0] = 0
		case kernel.AttentionHash:
			clear(tensor.Of[float64](c.Mem[2]))
		case kernel.TakeTokens:
			take(c, tensor.Of[float64](c.Mem[1]), tensor.Of[int32](c.Mem[6]))
		case kernel.ListTokens:
			clear(tensor.Of[int32](c.Mem[3]))
		case kernel.RouteTokens:
			chosen := tensor.Of[int32](c.Mem[0])
			for i := range chosen {
				chosen[i] = -1
				if i/c.K < c.Routing.Room {
					chosen[i] = int32(i % c.K)
				}
			}
		case kernel.PlaceTokens:
			count(tensor.Of[int32](c.Mem[3]), tensor.Of[int32](c.Mem[4]), c.First)
		}
		if cost != nil {
			clock.Advance(cost(c))
		}
	})}
}

// take sets readings to the tokens that are there and those that are taken.
func take(c *kernel.Call, readings []float64, offsets []int32) {
	clear(readings)
	readings[0] = float64(c.N)
	if guesses := c.Mem[5]; !guesses.IsZero() {
		return
	}
	for i, first := range offsets[:c.B] {
		readings[1] += float64(kernel.First(c.Depths.Capacity, int(offsets[i+1]-first)))
	}
}

// count sets ends to where the choices of each expert from a first one on would begin, and
// where all end.
func count(ends, chosen []int32, first int) {
	clear(ends)
	for _, one := range chosen {
		if e := int(one) - first; e >= 0 && e+1 < len(ends) {
			ends[e+1]++
		}
	}
	for e := 1; e < len(ends); e++ {
		ends[e] += ends[e-1]
	}
}

// AtRate returns the cost model of a device that reaches the same rate, in
// floating-point operations per second, in every call.
func AtRate(rate float64) func(*kernel.Call) float64 {
	return func(c *kernel.Call) float64 { return c.Flops() / rate }
}

type backend struct{ kernel.Calls }

func (*backend) Name() string     { return "null" }
func (*backend) Identity() string { return "null" }
