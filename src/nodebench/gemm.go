package nodebench

import (
	"fmt"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/random"
)

// Shape is a product of n tokens with a weight (o, c).
type Shape struct{ N, C, O int }

// GPT2 lists the products of a block of GPT-2 124M at 256 tokens: queries, keys and values;
// attention output; MLP up and down (Radford et al. 2019).
var GPT2 = []Shape{{256, 768, 2304}, {256, 768, 768}, {256, 768, 3072}, {256, 3072, 768}}

// sampledRows is how many rows of a product are compared with float64 sums.
const sampledRows = 8

// Gemm measures the rate of dense products at each shape, forward and both halves of backward, in
// units of 1e9 multiplications and additions per second. Rows spread over each result are compared
// with sums in float64. It needs a float32 backend on host memory. Errors come from memory or the
// device.
func Gemm(k kernel.Backend, dev device.Device, shapes []Shape, rounds Rounds) ([]Result, error) {
	b := newBench(k, dev)
	defer b.free()
	for i, shape := range shapes {
		if b.gemm(shape, uint64(i), rounds.of(i, len(shapes))); b.err != nil {
			return nil, fmt.Errorf("gemm %dx%dx%d: %w", shape.N, shape.C, shape.O, b.err)
		}
	}
	return b.results, nil
}

func (b *bench) gemm(s Shape, seed uint64, rounds Rounds) {
	draw := random.Keyed(seed).NormFloat64
	n, c, o := s.N, s.C, s.O
	inp, weight, dout := b.matrix(n*c, draw), b.matrix(o*c, draw), b.matrix(n*o, draw)
	out, dinp, dweight := b.matrix(n*o, nil), b.matrix(n*c, nil), b.matrix(o*c, nil)
	if b.err != nil {
		return
	}
	b.k.MatmulBackwardWeight(b.stream, dweight, none, dout, inp, n, c, o) // it adds to dweight, so dweight is read before the timed calls
	gradient := b.download(dweight)
	spans := b.rounds(rounds,
		func() { b.k.MatmulForward(b.stream, out, inp, weight, none, n, c, o) },
		func() { b.k.MatmulBackwardInput(b.stream, dinp, dout, weight, n, c, o) },
		func() { b.k.MatmulBackwardWeight(b.stream, dweight, none, dout, inp, n, c, o) })
	x, w, dy := b.download(inp), b.download(weight), b.download(dout)
	wrong := []int{
		wrongRows(b.download(out), n, o, c, func(i, j, l int) (float32, float32) { return x[i*c+l], w[j*c+l] }),
		wrongRows(b.download(dinp), n, c, o, func(i, j, l int) (float32, float32) { return dy[i*o+l], w[l*c+j] }),
		wrongRows(gradient, o, c, n, func(i, j, l int) (float32, float32) { return dy[l*o+i], x[l*c+j] }),
	}
	for i, name := range []string{"forward", "backward_input", "backward_weight"} {
		rate := spans.rate(i, 2e-9*float64(n)*float64(c)*float64(o))
		b.add(fmt.Sprintf("gemm/%s_%dx%dx%d", name, n, c, o), rate, "GFLOP/s", 0, wrong[i])
	}
}

// wrongRows counts the wrong elements in sampled rows of got (m, n). Element (i, j) must be the sum
// over l < k of the product of the two numbers term(i, j, l).
func wrongRows(got []float32, m, n, k int, term func(i, j, l int) (float32, float32)) int {
	check := checker{}
	for i := 0; i < m; i += (m + sampledRows - 1) / sampledRows {
		for j := range n {
			var want total
			for l := range k {
				x, y := term(i, j, l)
				want.add(float64(x) * float64(y))
			}
			check.within(float64(got[i*n+j]), want.sum, tolerance*want.absolute)
		}
	}
	return check.wrong
}
