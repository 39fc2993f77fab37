package kerneltest

import (
	"fmt"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// embedding returns both calls, with tables small enough that tokens and
// positions repeat, in no order.
func (of maker) embedding(n, c int) []call {
	const v, places = 7, 19
	r := of.draw()
	shape := fmt.Sprintf("n=%d,c=%d", n, c)
	tokens, positions := r.indices(n, v), r.indices(n, places)

	wte, wpe := r.normal(v*c), r.normal(places*c)
	out, bound := make([]float64, n*c), make([]float64, n*c)
	ref.EmbeddingForward(out, tokens, positions, wte, wpe, c)
	ref.EmbeddingForward(bound, tokens, positions, abs(wte), abs(wpe), c)
	forward := call{
		"EmbeddingForward/" + shape,
		[]operand{set(out, bound), in(tokens), in(positions), in(wte), in(wpe)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.EmbeddingForward(s, m[0], m[1], m[2], m[3], m[4], n, c)
		},
	}

	dout, dwte, dwpe := r.normal(n*c), r.normal(v*c), r.normal(places*c)
	wantToken, wantPosition := clone(dwte), clone(dwpe)
	boundToken, boundPosition := abs(dwte), abs(dwpe)
	ref.EmbeddingBackward(wantToken, wantPosition, dout, tokens, positions, c)
	ref.EmbeddingBackward(boundToken, boundPosition, abs(dout), tokens, positions, c)
	backward := call{
		"EmbeddingBackward/" + shape,
		[]operand{addWide(dwte, wantToken, boundToken), addWide(dwpe, wantPosition, boundPosition), in(dout), in(tokens), in(positions)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.EmbeddingBackward(s, m[0], m[1], m[2], m[3], m[4], n, c)
		},
	}
	return []call{forward, backward}
}
