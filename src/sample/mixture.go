package sample

import (
	"math"

	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/model"
)

// mixture is an extension of a model that has several MLPs in each block. A token goes to a
// few of its Shared MLPs.
type mixture interface {
	model.Extension
	// Taken returns how many MLPs of a block a token goes to.
	Taken() int
	// Place returns what the names of the weights of an MLP begin with, in its block.
	Place(mlp int) string
	// Plain returns which MLPs each of n tokens goes to, and by which weights, (n, Taken).
	Plain(n int, logit func(i int) float64) (chosen []int32, weights []float64)
	// Notes says where tokens went to other MLPs in training.
	Notes() []string
}

// Notes says what sampling computes otherwise than training did.
func Notes(c model.Config) []string {
	var list []string
	if e := model.KindOf[mixture](c); e != nil {
		list = append(list, e.Notes()...)
	}
	if r := model.KindOf[routing](c); r != nil {
		list = append(list, r.Notes()...)
	}
	if l := model.KindOf[leaving](c); l != nil {
		list = append(list, l.Notes()...)
	}
	return list
}

// routed is what a mixture works in.
type routed struct{ logits, squashed, inp, out []float32 }

// mix adds the output of a mixture's MLPs for normed to x (n, C). For each token that is the sum,
// over the token's MLPs, of weight times output.
func (s *Session) mix(b *block, n int) {
	m, c, count, top := s.m, s.m.Config.Hidden, len(b.mlps), s.m.mixture.Taken()
	r := &s.routed
	resize(&r.logits, n*count)
	resize(&r.inp, n*c)
	resize(&r.out, n*top*c)
	m.multiply(r.logits, s.normed[:n*c], b.router, n, c, count)
	if b.outer.weight != nil {
		resize(&r.squashed, n*count)
		for i, a := range r.logits {
			r.squashed[i] = float32(math.Tanh(float64(a)))
		}
		m.multiply(r.logits, r.squashed, b.outer, n, count, count)
	}
	chosen, weights := m.mixture.Plain(n, func(i int) float64 { return float64(r.logits[i]) })
	for k, w := range b.mlps {
		var choices []int // of this MLP
		for i, mlp := range chosen {
			if int(mlp) == k {
				copy(r.inp[len(choices)*c:][:c], s.normed[i/top*c:])
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
		blas32.Axpy(float32(weight), vector(r.out[i*c:][:c]), vector(s.x[i/top*c:][:c]))
	}
}
