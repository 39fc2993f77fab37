package mod

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
)

// plainDepths returns the loss of a mixture of depths in scalar code (Raposo et al. 2024, sections
// 3.2 to 3.5). Every second block computes out = x + g·(block(x) - x) for the tokens that it takes:
// those with the largest logits of a sequence, or those that a predictor chooses. own has the
// binary cross-entropies by which router and predictor learn which tokens are among the largest.
// The authors' code is not public. taken counts the tokens.
func plainDepths(ch *modeltest.Chain) (p *modeltest.Plain, loss, own modeltest.Scalar, taken int) {
	d := model.KindOf[Depths](ch.S.Config)
	zero := func() modeltest.Scalar { return p.Put(0, nil, nil) }
	squash := func(z modeltest.Scalar) modeltest.Scalar {
		s := 1 / (1 + math.Exp(-z.X))
		return p.Map(z, s, s*(1-s))
	}
	constant := func(x []modeltest.Scalar) (y []modeltest.Scalar) {
		for _, v := range x {
			y = append(y, p.Put(v.X, nil, nil))
		}
		return y
	}
	linear := func(at string, x []modeltest.Scalar) []modeltest.Scalar {
		y := p.Product(at+".weight", x)
		for i, b := range p.Rows(at+".bias", 1) {
			y[i] = p.Add(y[i], b[0])
		}
		return y
	}
	entropy := func(z modeltest.Scalar, label, weight float64) modeltest.Scalar { // binary, of sigmoid(z)
		s, scale := 1/(1+math.Exp(-z.X)), weight/float64(len(ch.Tokens))
		return p.Map(z, -scale*(label*math.Log(s)+(1-label)*math.Log(1-s)), scale*(s-label))
	}
	var losses []func()
	p, logits := modeltest.PlainOf(ch, func(plain *modeltest.Plain) {
		p = plain
		p.Block = func(block int, x [][]modeltest.Scalar, through func([][]modeltest.Scalar, []int) [][]modeltest.Scalar) [][]modeltest.Scalar {
			all, at := make([]int, len(x)), model.InBlock(block).Layer+"/depths."
			for t := range all {
				all[t] = t
			}
			if block%2 == 0 {
				return through(x, all)
			}
			var router, guesses []modeltest.Scalar
			for t := range x {
				router = append(router, linear(at+"router", x[t])[0])
				if d.Predictor {
					hidden := linear(at+"predictor.up", constant(x[t]))
					for i, h := range hidden {
						u := math.Sqrt(2/math.Pi) * (h.X + 0.044715*h.X*h.X*h.X)
						tanh, du := math.Tanh(u), math.Sqrt(2/math.Pi)*(1+3*0.044715*h.X*h.X)
						hidden[i] = p.Map(h, 0.5*h.X*(1+tanh), 0.5*(1+tanh)+0.5*h.X*(1-tanh*tanh)*du)
					}
					guesses = append(guesses, linear(at+"predictor.down", hidden)[0])
				}
			}
			order := slices.Clone(all)
			slices.SortFunc(order, func(a, b int) int { return cmp.Compare(router[b].X, router[a].X) })
			first := order[:int(math.Ceil(d.Capacity*float64(len(x))))]
			var rows []int
			var some [][]modeltest.Scalar
			for t := range x {
				label := 0.0
				if slices.Contains(first, t) {
					label = 1
				}
				takes := label == 1
				losses = append(losses, func() { own = p.Add(own, entropy(router[t], label, d.Auxiliary)) })
				if d.Predictor {
					takes = 1/(1+math.Exp(-guesses[t].X)) > d.Threshold
					losses = append(losses, func() { own = p.Add(own, entropy(guesses[t], label, 1)) })
				}
				if takes {
					rows, some = append(rows, t), append(some, x[t])
				}
			}
			taken += len(rows)
			out := slices.Clone(x)
			for k, y := range through(some, rows) {
				t := rows[k]
				g := squash(router[t])
				if d.One {
					g = p.Put(1, nil, nil)
				}
				out[t] = make([]modeltest.Scalar, len(y))
				for i := range y {
					negative := p.Map(x[t][i], -x[t][i].X, -1)
					out[t][i] = p.Add(x[t][i], p.Mul(g, p.Add(y[i], negative)))
				}
			}
			return out
		}
	})
	own = zero()
	for _, add := range losses {
		add()
	}
	return p, p.Loss(logits, ch.Targets), own, taken
}

// TestDepthsAreThePlainModel: over 20 steps of gradient descent loss and gradients are those of the
// model written number by number.
func TestDepthsAreThePlainModel(t *testing.T) {
	for _, d := range []Depths{{Capacity: 0.5, Auxiliary: 0.3}, {Capacity: 0.4, Predictor: true, Threshold: 0.5, Auxiliary: 0.1}, {Capacity: 0.7, One: true}} {
		t.Run(fmt.Sprintf("%+v", d), func(t *testing.T) {
			ch := modeltest.New(t, modeltest.SmallLlama.With(d), tensor.F64)
			modeltest.Enlarge(ch.S)
			sum := 0
			for step := range 20 {
				ch.Gradients()
				p, loss, own, taken := plainDepths(ch)
				if got := ch.Loss(); math.Abs(got-loss.X) > 1e-10 {
					t.Fatalf("step %d: loss %v, plainly %v", step, got, loss.X)
				}
				modeltest.EqualGradients(t, ch, p, p.Derivatives(p.Add(loss, own)))
				ch.Descend(0.05)
				sum += taken
			}
			if sum == 0 || sum == 20*ch.X.N() {
				t.Errorf("%d of %d tokens are taken", sum, 20*ch.X.N())
			}
		})
	}
}
