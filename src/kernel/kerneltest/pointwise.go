package kerneltest

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// pointwise returns the sums of two operands and both calls of GELU. Some numbers are in the slope
// of the tanh; at others the tanh has reached ±1.
func (of maker) pointwise(n int) []example {
	inp := of.draw(givenSeed).normal(n)
	for i := range inp {
		inp[i] *= float64(int(1) << (i % 6)) // standard deviations 1 … 32
	}
	call := func(op kernel.Op) kernel.Call { return kernel.Call{Op: op, Dims: kernel.Dims{N: n}} }
	given := map[string]any{"inp": inp}
	return []example{
		of.example(call(kernel.GELUForward), "", given, of.bounded(geluBounds)),
		of.example(call(kernel.GELUBackward), "", given, of.bounded(geluBounds)),
		of.example(call(kernel.Add), "", nil, nil),
		of.example(call(kernel.Accumulate), "", nil, nil),
	}
}

// roundings returns Round, and AccumulateRounded of Round's result with and without a first
// operand. Some numbers are equally near to two bfloat16 numbers. Both zeros, both infinities and a
// number that rounds to infinity are among them. All results are exact.
func (of maker) roundings(n int) []example {
	x, rounded, a := of.draw(givenSeed).normal(n), make([]float64, n), single(of.draw(drawnSeed).normal(n))
	special := []float64{1 + 1.0/256, 1 + 3.0/256, 1 + 1.0/256 + 0x1p-23, math.Copysign(0, -1), 0, math.MaxFloat32, math.Inf(-1), 0x1p-149}
	for i := range x {
		x[i] = float64(float32(x[i]))
		if i%5 == 2 {
			x[i] = special[i%len(special)]
		}
		rounded[i] = float64(tensor.FromBF16(tensor.ToBF16(float32(x[i]))))
	}
	exactly := func(out values) judge { return func(kernel.Call, values) (values, values) { return out, nil } }
	sum := slices.Clone(rounded)
	for i := range sum {
		if sum[i] += a[i]; of.dtype != tensor.F64 {
			sum[i] = float64(float32(sum[i]))
		}
	}
	call := func(op kernel.Op) kernel.Call { return kernel.Call{Op: op, Dims: kernel.Dims{N: n}} }
	return []example{
		of.example(call(kernel.Round), "", map[string]any{"x": x}, exactly(values{"out": rounded})),
		of.example(call(kernel.AccumulateRounded), "", map[string]any{"a": a, "b": rounded}, exactly(values{"out": sum})),
		of.example(call(kernel.AccumulateRounded), ",no a", map[string]any{"a": nil, "b": rounded}, exactly(values{"out": rounded})),
	}
}

// swiGLU returns both calls, on gates where the logistic function is in its slope and
// where it has reached 0 or 1.
func (of maker) swiGLU(n, c int) []example {
	gateup := of.draw(givenSeed).normal(n * 2 * c)
	for i := range gateup {
		gateup[i] *= float64(int(1) << (i % 6)) // standard deviations 1 … 32
	}
	given := map[string]any{"gateup": gateup}
	call := func(op kernel.Op) kernel.Call { return kernel.Call{Op: op, Dims: kernel.Dims{N: n, C: c}} }
	return []example{
		of.example(call(kernel.SwiGLUForward), "", given, of.bounded(swiGLUBounds)),
		of.example(call(kernel.SwiGLUBackward), "", given, of.bounded(swiGLUBounds)),
	}
}

// swiGLUBounds are those of both calls: |silu(x)| is at most |x|, and its slope below 1.1.
func swiGLUBounds(d kernel.Dims, x, _ values) values {
	out, dgateup := make([]float64, d.N*d.C), make([]float64, d.N*2*d.C)
	for i := range out {
		at := i/d.C*2*d.C + i%d.C
		gate, up := math.Abs(x["gateup"][at]), math.Abs(x["gateup"][at+d.C])
		out[i] = gate * up
		if dout := x["dout"]; dout != nil {
			dgateup[at], dgateup[at+d.C] = math.Abs(dout[i])*up*(1+gate), math.Abs(dout[i])*gate
		}
	}
	return values{"out": out, "dgateup": dgateup}
}

// geluBounds are those of both calls: the derivatives are of the order of 1, so
// that errors are bounded by |x| and by 1 + |x| times the gradient.
func geluBounds(_ kernel.Dims, x, _ values) values {
	slope := abs(x["dout"])
	for i := range slope {
		slope[i] *= 1 + math.Abs(x["inp"][i])
	}
	return values{"out": abs(x["inp"]), "dinp": slope}
}

// geluOfProduct is the bounds of MatmulForwardGELU: GELU's slope is below 1.13.
func (of maker) geluOfProduct(d kernel.Dims, x, _ values) values {
	_, product := termwise(of.reference)(kernel.Call{Op: kernel.MatmulForward, Dims: d}, x)
	twice := make([]float64, len(product["out"]))
	for i, bound := range product["out"] {
		twice[i] = 2 * bound
	}
	return values{"pre": product["out"], "out": twice}
}

// productOfGELU is the judge of MatmulBackwardGELU.
func (of maker) productOfGELU(c kernel.Call, x values) (want, bound values) {
	x["dinp"] = x["dpre"]
	_, product := termwise(of.reference)(kernel.Call{Op: kernel.MatmulBackwardInput, Dims: c.Dims}, x)
	for i := range product["dinp"] {
		product["dinp"][i] *= 1 + math.Abs(x["pre"][i])
	}
	return of.reference(c, x), values{"dpre": product["dinp"]}
}

// aliasing asserts that the calls that may work in place give the same bits
// there as elsewhere.
func aliasing(t *testing.T, k kernel.Backend, dev device.Device) {
	all := slices.Concat(maker{k.DType(), k.Products()}.pointwise(1027), maker{k.DType(), k.Products()}.roundings(1027))
	for _, c := range []struct {
		op    kernel.Op
		place int // operand that is also the destination
	}{{kernel.GELUBackward, 2}, {kernel.Add, 1}, {kernel.Add, 2}, {kernel.Accumulate, 1}, {kernel.AccumulateRounded, 1}} {
		call := all[slices.IndexFunc(all, func(x example) bool { return x.Op == c.op })]
		apart := newArena(t, dev, call, k.DType(), 0)
		call.run(k, apart.stream, apart.mem)
		inPlace := newArena(t, dev, call, k.DType(), 0)
		inPlace.mem[0] = inPlace.mem[c.place]
		call.run(k, inPlace.stream, inPlace.mem)
		if !bytes.Equal(apart.read(t)[0], inPlace.read(t)[c.place]) {
			t.Errorf("%s: other bits in place of operand %d than elsewhere", c.op, c.place)
		}
		apart.free()
		inPlace.free()
	}
}

// rotary returns the call on heads at the front of rows of width, with positions that
// repeat, in no order. Channels behind the heads keep their bits.
func (of maker) rotary(n, heads, hs, width int) example {
	const places = 19
	r := of.draw(givenSeed)
	table := make([]float64, places*hs)
	for i := range table {
		place, x := i/hs, i%hs
		angle := float64(place) * math.Pow(10000, -2*float64(x%(hs/2))/float64(hs))
		table[i] = float64(float32(math.Cos(angle)))
		if x >= hs/2 {
			table[i] = float64(float32(math.Sin(angle)))
		}
	}
	call := kernel.Call{Op: kernel.Rotary, Dims: kernel.Dims{N: n, C: width, NH: heads, HS: hs}, Inverse: n%2 == 1}
	note := ""
	if call.Inverse {
		note = ",inverse"
	}
	given := map[string]any{"positions": r.indices(n, places), "table": table}
	return of.example(call, note, given, of.bounded(rotaryBounds))
}

// rotaryBounds are the absolute values of both terms of a rotated channel.
func rotaryBounds(d kernel.Dims, x, _ values) values {
	bound, half := make([]float64, d.N*d.C), d.HS/2
	for i := range d.N {
		turns := x["table"][int(x["positions"][i])*d.HS:]
		for at := range d.NH * half {
			first := i*d.C + at/half*d.HS + at%half
			a, b := math.Abs(x["qkv"][first]), math.Abs(x["qkv"][first+half])
			cos, sin := math.Abs(turns[at%half]), math.Abs(turns[at%half+half])
			bound[first], bound[first+half] = a*cos+b*sin, b*cos+a*sin
		}
	}
	return values{"qkv": bound}
}
