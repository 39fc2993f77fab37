package kerneltest

import (
	"math"

	"dynmo/src/kernel"
)

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
	return of.example(call, note, given, bounded(rotaryBounds))
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
