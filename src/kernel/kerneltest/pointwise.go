package kerneltest

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// gelu returns both calls, on numbers where the tanh is in its slope and where
// it has reached ±1. Their derivatives are of the order of 1, so that their
// errors are bounded by |x| and by 1 + |x| times the gradient.
func (of maker) gelu(n int) []call {
	r := of.draw()
	inp, dout := r.normal(n), r.normal(n)
	for i := range inp {
		inp[i] *= float64(int(1) << (i % 6)) // standard deviations 1 … 32
	}
	out, dinp, slope := make([]float64, n), make([]float64, n), abs(dout)
	ref.GELUForward(out, inp)
	ref.GELUBackward(dinp, inp, dout)
	for i := range slope {
		slope[i] *= 1 + math.Abs(inp[i])
	}
	return []call{{
		fmt.Sprintf("GELUForward/n=%d", n),
		[]operand{set(out, abs(inp)), in(inp)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) { k.GELUForward(s, m[0], m[1], n) },
	}, {
		fmt.Sprintf("GELUBackward/n=%d", n),
		[]operand{set(dinp, slope), in(inp), in(dout)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) { k.GELUBackward(s, m[0], m[1], m[2], n) },
	}}
}

func (of maker) addition(n int) call {
	a, b, out, bound := of.sum(n)
	return call{
		fmt.Sprintf("Add/n=%d", n),
		[]operand{set(out, bound), in(a), in(b)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) { k.Add(s, m[0], m[1], m[2], n) },
	}
}

func (of maker) accumulation(n int) call {
	a, b, out, bound := of.sum(n)
	return call{
		fmt.Sprintf("Accumulate/n=%d", n),
		[]operand{setWide(out, bound), inWide(a), inWide(b)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) { k.Accumulate(s, m[0], m[1], m[2], n) },
	}
}

// sum returns two operands of n elements, their sum and its bound.
func (of maker) sum(n int) (a, b floats, out, bound []float64) {
	r := of.draw()
	a, b = r.normal(n), r.normal(n)
	out, bound = make([]float64, n), make([]float64, n)
	ref.Add(out, a, b)
	ref.Add(bound, abs(a), abs(b))
	return a, b, out, bound
}

// aliasing asserts that the calls that may work in place give the same bits
// there as elsewhere.
func aliasing(t *testing.T, k kernel.Backend, dev device.Device) {
	const n = 1027
	of := maker{k.DType()}
	backward, sum, wideSum := of.gelu(n)[1], of.addition(n), of.accumulation(n)
	for _, c := range []struct {
		name  string
		call  call
		place int // operand that is also the destination
	}{{"GELUBackward dinp=dout", backward, 2}, {"Add out=a", sum, 1}, {"Add out=b", sum, 2}, {"Accumulate out=a", wideSum, 1}} {
		apart := newArena(t, dev, c.call, k.DType(), 0)
		c.call.do(k, apart.stream, apart.mem)
		inPlace := newArena(t, dev, c.call, k.DType(), 0)
		inPlace.mem[0] = inPlace.mem[c.place]
		c.call.do(k, inPlace.stream, inPlace.mem)
		if !bytes.Equal(apart.read(t)[0], inPlace.read(t)[c.place]) {
			t.Errorf("%s: other bits than with a destination of its own", c.name)
		}
		apart.free()
		inPlace.free()
	}
}
