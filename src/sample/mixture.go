package sample

import (
	"math"

	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/model"
)

// mixture is an extension of a model with several MLPs in each block. Each token goes to a few of
// them.
type mixture interface {
	model.Extension
	// Taken returns the number of MLPs of a block that a token goes to.
	Taken() int
	// Place returns the prefix of the names of an MLP's weights in its block.
	Place(mlp int) string
	// Plain returns the MLPs of each of n tokens, and their weights, both (n, Taken).
	Plain(n int, logit func(i int) float64) (chosen []int32, weights []float64)
	// Notes describes how tokens were assigned to MLPs differently in training.
	Notes() []string
}

// Notes describes the differences between sampling and training.
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

// routed has the buffers of a mixture.
type routed struct{ logits, squashed, inp, out []float32 }

// mix adds the output of a mixture's MLPs for normed to x (n, C). For each token it adds the sum,
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
		var choices []int // places of this MLP in chosen
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
