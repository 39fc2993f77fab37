package kerneltest

import (
	"fmt"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// embedding returns both calls, with a vocabulary small enough that tokens
// repeat and a position table longer than the sequence.
func (of maker) embedding(b, t, c int) []call {
	const v = 7
	r := of.draw()
	shape := fmt.Sprintf("b=%d,t=%d,c=%d", b, t, c)
	tokens := r.indices(b*t, v)

	wte, wpe := r.normal(v*c), r.normal((t+2)*c)
	out, bound := make([]float64, b*t*c), make([]float64, b*t*c)
	ref.EmbeddingForward(out, tokens, wte, wpe, b, t, c)
	ref.EmbeddingForward(bound, tokens, abs(wte), abs(wpe), b, t, c)
	forward := call{
		"EmbeddingForward/" + shape,
		[]operand{set(out, bound), in(tokens), in(wte), in(wpe)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.EmbeddingForward(s, m[0], m[1], m[2], m[3], b, t, c)
		},
	}

	dout, dwte, dwpe := r.normal(b*t*c), r.normal(v*c), r.normal((t+2)*c)
	wantToken, wantPosition := clone(dwte), clone(dwpe)
	boundToken, boundPosition := abs(dwte), abs(dwpe)
	ref.EmbeddingBackward(wantToken, wantPosition, dout, tokens, b, t, c)
	ref.EmbeddingBackward(boundToken, boundPosition, abs(dout), tokens, b, t, c)
	backward := call{
		"EmbeddingBackward/" + shape,
		[]operand{addWide(dwte, wantToken, boundToken), addWide(dwpe, wantPosition, boundPosition), in(dout), in(tokens)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.EmbeddingBackward(s, m[0], m[1], m[2], m[3], b, t, c)
		},
	}
	return []call{forward, backward}
}
