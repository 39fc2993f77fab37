package sample

import (
	"math"

	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/kind/moe"
	"dynmo/src/model"
)

// routed is what experts work in.
type routed struct{ logits, squashed, inp, out []float32 }

// experts adds to x (n, C) what the experts make of normed: of each token the sum, over those
// that it goes to, of their weight times what they make (see moe.Experts.Plain).
func (s *Session) experts(b *block, n int) {
	m, c, e := s.m, s.m.Config.Hidden, model.KindOf[moe.Experts](s.m.Config)
	r := &s.routed
	resize(&r.logits, n*e.Count)
	resize(&r.inp, n*c)
	resize(&r.out, n*e.Top*c)
	m.multiply(r.logits, s.normed, b.router, n, c, e.Count)
	if e.Squashed {
		resize(&r.squashed, n*e.Count)
		for i, a := range r.logits {
			r.squashed[i] = float32(math.Tanh(float64(a)))
		}
		m.multiply(r.logits, r.squashed, b.outer, n, e.Count, e.Count)
	}
	chosen, weights := e.Plain(n, func(i int) float64 { return float64(r.logits[i]) })
	for k, w := range b.mlps {
		var choices []int // of this expert
		for i, expert := range chosen {
			if int(expert) == k {
				copy(r.inp[len(choices)*c:][:c], s.normed[i/e.Top*c:])
				choices = append(choices, i)
			}
		}
		if len(choices) == 0 {
			continue
		}
		rows := r.inp[:len(choices)*c]
		s.mlp(rows, rows, w, len(choices))
		for row, i := range choices {
			copy(r.out[i*c:][:c], rows[row*c:])
		}
	}
	for i, weight := range weights {
		blas32.Axpy(float32(weight), vector(r.out[i*c:][:c]), vector(s.x[i/e.Top*c:][:c]))
	}
}
