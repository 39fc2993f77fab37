package ref

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"slices"
	"testing"
)

// The forward passes against the shortest way to write them down, in float64.

func normal(n int) []float64 { return newGradients(nil).normal(n) }

func near(t *testing.T, name string, got, want []float64) {
	t.Helper()
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-12*(1+math.Abs(want[i]))) {
			t.Fatalf("%s: element %d is %g, want %g", name, i, got[i], want[i])
		}
	}
}

func TestEmbeddingForward(t *testing.T) {
	wte, wpe := []float64{1, 2, 3, 4, 5, 6}, []float64{10, 20, 30, 40}
	out := make([]float64, 8)
	embeddingForward(out, []int32{2, 0, 1, 1}, []int32{0, 1, 1, 0}, wte, wpe, 2)
	near(t, "out", out, []float64{15, 26, 31, 42, 33, 44, 13, 24})
}

func TestLayerNorm(t *testing.T) {
	inp, weight, bias := []float64{1, 2, 3, 6}, []float64{1, -1, 2, 0.5}, []float64{0, 1, 2, 3}
	out, mean, rstd := make([]float64, 4), make([]float64, 1), make([]float64, 1)
	NormForward(out, mean, rstd, inp, weight, bias, 1, 4, 1e-5)
	r := 1 / math.Sqrt(3.5+1e-5) // deviations -2, -1, 0, 3: squares sum to 14
	near(t, "mean", mean, []float64{3})
	near(t, "rstd", rstd, []float64{r})
	near(t, "out", out, []float64{-2 * r, 1 + r, 2, 3 + 1.5*r})
}

func TestMatmulForward(t *testing.T) {
	for _, s := range [][3]int{{1, 1, 1}, {3, 5, 4}, {2, 4, 7}, {5, 3, 9}} { // o mod 4 = 1, 0, 3, 1
		n, c, o := s[0], s[1], s[2]
		inp, weight, bias := normal(n*c), normal(o*c), normal(o)
		want := make([]float64, n*o)
		for i := range n {
			for j := range o {
				want[i*o+j] = bias[j]
				for k := range c {
					want[i*o+j] += inp[i*c+k] * weight[j*c+k]
				}
			}
		}
		out := make([]float64, n*o)
		MatmulForward(out, inp, weight, bias, n, c, o)
		near(t, "out", out, want)
	}
}

func TestAttentionForward(t *testing.T) {
	const c, nh, hs = 6, 2, 3
	offsets := []int32{0, 9, 9, 10, 15} // sequences of 9, 0, 1 and 5 tokens
	n := int(offsets[4])
	qkv := normal(n * 3 * c)
	at := func(i, part, head, x int) float64 { // part: 0 query, 1 key, 2 value
		return qkv[(i*3+part)*c+head*hs+x]
	}
	wantOut, wantLSE := make([]float64, n*c), []float64(nil)
	for sequence, first := range offsets[:4] {
		for head := range nh {
			for i := int(first); i < int(offsets[sequence+1]); i++ {
				var sum float64
				var weighted [hs]float64
				for j := int(first); j <= i; j++ {
					var score float64
					for x := range hs {
						score += at(i, 0, head, x) * at(j, 1, head, x)
					}
					e := math.Exp(score / math.Sqrt(hs))
					sum += e
					for x := range hs {
						weighted[x] += e * at(j, 2, head, x)
					}
				}
				wantLSE = append(wantLSE, math.Log(sum))
				for x := range hs {
					wantOut[i*c+head*hs+x] = weighted[x] / sum
				}
			}
		}
	}
	out, lse := make([]float64, len(wantOut)), make([]float64, len(wantLSE))
	attentionForward(out, lse, qkv, offsets, 9, c, nh, nh)
	near(t, "out", out, wantOut)
	near(t, "lse", lse, wantLSE)
}

// TestGroupedAttention: heads that share keys attend as if each had a copy of them.
func TestGroupedAttention(t *testing.T) {
	const n, c, nh, kv, hs = 9, 8, 4, 2, 2
	offsets, grouped := []int32{0, 4, 9}, normal(n*rowWidth(c, nh, kv))
	var plain []float64
	for i := range n {
		row := grouped[i*rowWidth(c, nh, kv):]
		plain = append(plain, row[:c]...)
		for _, shared := range [][]float64{row[c:][:kv*hs], row[c+kv*hs:][:kv*hs]} {
			for head := range nh {
				plain = append(plain, shared[head/(nh/kv)*hs:][:hs]...)
			}
		}
	}
	out, lse, wantOut, wantLSE := make([]float64, n*c), make([]float64, n*nh), make([]float64, n*c), make([]float64, n*nh)
	attentionForward(out, lse, grouped, offsets, 5, c, nh, kv)
	attentionForward(wantOut, wantLSE, plain, offsets, 5, c, nh, nh)
	if !slices.Equal(out, wantOut) || !slices.Equal(lse, wantLSE) {
		t.Error("other bits than with copies of keys and values")
	}
}

func TestRMSNorm(t *testing.T) {
	out, rstd := make([]float64, 4), make([]float64, 1)
	NormForward(out, nil, rstd, []float64{1, -2, 3, 4}, []float64{1, -1, 2, 0.5}, nil, 1, 4, 0.5)
	r := 1 / math.Sqrt(8) // squares sum to 30
	near(t, "rstd", rstd, []float64{r})
	near(t, "out", out, []float64{r, 2 * r, 6 * r, 2 * r})
}

// TestRotary: a pair of channels is a complex number that is multiplied by exp(i·angle).
func TestRotary(t *testing.T) {
	const hs, width = 4, 10
	angles := []float64{0.3, -1.1}
	table := []float64{1, 1, 0, 0, math.Cos(angles[0]), math.Cos(angles[1]), math.Sin(angles[0]), math.Sin(angles[1])}
	for _, inverse := range []bool{false, true} {
		qkv := normal(width)
		want := slices.Clone(qkv)
		for pair := range 4 {
			x := pair/2*hs + pair%2
			angle := angles[pair%2]
			if inverse {
				angle = -angle
			}
			turned := complex(qkv[x], qkv[x+hs/2]) * cmplx.Exp(complex(0, angle))
			want[x], want[x+hs/2] = real(turned), imag(turned)
		}
		rotary(qkv, []int32{1}, table, 2, width, hs, inverse)
		near(t, "qkv", qkv, want)
	}
}

func TestSwiGLUForward(t *testing.T) {
	out := make([]float64, 4)
	swiGLUForward(out, []float64{0, math.Log(3), 5, 2, -math.Log(4), 2, 3, 10}, 2, 2)
	near(t, "out", out, []float64{0, 2 * 0.75 * math.Log(3), 3 * -0.2 * math.Log(4), 10 * 2 / (1 + math.Exp(-2))})
}

func TestCombineRows(t *testing.T) {
	inp, rows := []float64{1, 2, 3, 4, 5, 6}, []int32{2, 0, -1, 1, -1, -1}
	out := make([]float64, 6)
	combineRows(out, inp, rows, []float64{1, 10, 7, 2, 7, 7}, 3, 2, 2)
	near(t, "out", out, []float64{15, 26, 6, 8, 0, 0})
	combineRows(out, inp, rows, nil, 3, 2, 2)
	near(t, "out", out, []float64{6, 8, 3, 4, 0, 0})
}

func TestGELUForward(t *testing.T) {
	inp := []float64{-3, -1, 0, 0.5, 1, 3}
	out, want := make([]float64, len(inp)), make([]float64, len(inp))
	for i, x := range inp {
		want[i] = x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) // (1 + tanh u)/2 is the logistic of 2u
	}
	geluForward(out, inp)
	near(t, "out", out, want)
}

func TestCrossEntropyLoss(t *testing.T) {
	logits := []float64{0, 0, 0, 0, math.Log(1), math.Log(2), math.Log(3), math.Log(4)}
	loss := crossEntropy(make([]float64, 6), nil, logits, []int32{3, 1}, 1, 2, 4, 0)
	near(t, "loss", []float64{loss}, []float64{math.Log(4) + math.Log(5)}) // -log of 1/4 and of 2/10
	near(t, "dlogits", logits, []float64{0.25, 0.25, 0.25, -0.75, 0.1, -0.8, 0.3, 0.4})
}

// TestLikeliest: the largest, of equal ones the first, a number before NaN.
func TestLikeliest(t *testing.T) {
	nan, low := math.NaN(), math.Inf(-1)
	got := make([]int32, 4)
	likeliest(got, []float64{1, 3, 3, 2, nan, low, -5, -9, nan, nan, nan, low, 7, 0, 1, 2}, 4)
	if want := []int32{1, 2, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestSlicesOfTheVocabulary cuts rows into slices and goes over them, forth
// with SoftmaxMerge and CrossEntropy, back with SoftmaxGradient.
func TestSlicesOfTheVocabulary(t *testing.T) {
	const n, v, scale = 4, 9, 0.5
	rnd := rand.New(rand.NewPCG(7, 8))
	logits, targets := make([]float64, n*v), []int32{0, 8, 4, 3}
	for i := range logits {
		logits[i] = 30 * rnd.NormFloat64()
	}
	whole := slices.Clone(logits)
	want := crossEntropy(make([]float64, 3*n), nil, whole, targets, scale, n, v, 0)

	cuts := []int{0, 1, 4, 9}
	var parts [][]float64
	for k := range 3 {
		var part []float64
		for i := range n {
			part = append(part, logits[i*v:][cuts[k]:cuts[k+1]]...)
		}
		parts = append(parts, part)
	}
	first, second, stats := make([]float64, 3*n), make([]float64, 3*n), make([]float64, 3*n)
	softmaxMerge(first, nil, parts[0], targets, n, 1, 0)
	softmaxMerge(second, first, parts[1], targets, n, 3, 1)
	loss := crossEntropy(stats, second, parts[2], targets, scale, n, 5, 4)
	softmaxGradient(parts[1], stats, targets, scale, n, 3, 1)
	softmaxGradient(parts[0], stats, targets, scale, n, 1, 0)
	near(t, "loss", []float64{loss}, []float64{want})
	for k, part := range parts {
		for i := range n {
			width := cuts[k+1] - cuts[k]
			near(t, "dlogits", part[i*width:][:width], whole[i*v:][cuts[k]:cuts[k+1]])
		}
	}
}

// TestSpMMKeepsTheBitsOfMatmul is why a model trains alike whether its pruned
// layers are masked or compressed.
func TestSpMMKeepsTheBitsOfMatmul(t *testing.T) {
	const n, c, o = 6, 37, 23
	rnd := rand.New(rand.NewPCG(5, 6))
	single := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rnd.NormFloat64())
		}
		return x
	}
	inp, bias, dout, dense := single(n*c), single(o), single(n*o), single(o*c)
	w := csr[float32]{Rows: o, Cols: c, RowPtr: []int32{0}}
	for i := range dense {
		if rnd.IntN(4) > 0 {
			dense[i] = 0
		} else {
			w.ColIdx, w.Values = append(w.ColIdx, int32(i%c)), append(w.Values, dense[i])
		}
		if i%c == c-1 {
			w.RowPtr = append(w.RowPtr, int32(len(w.ColIdx)))
		}
	}
	got, want := make([]float32, n*o), make([]float32, n*o)
	spMMForward(got, inp, w, bias, n)
	MatmulForward(want, inp, dense, bias, n, c, o)
	if !slices.Equal(got, want) {
		t.Error("forward differs")
	}
	got, want = make([]float32, n*c), make([]float32, n*c)
	spMMBackwardInput(got, dout, w, n)
	matmulBackwardInput(want, dout, dense, n, c, o)
	if !slices.Equal(got, want) {
		t.Error("backward for inputs differs")
	}
	product, values := make([]float32, o*c), make([]float32, len(w.Values))
	matmulBackwardWeight(product, nil, dout, inp, n, c, o)
	sddmm(values, nil, dout, inp, w, n)
	for r := range o {
		columns, first := w.row(r)
		for e, column := range columns {
			if values[first+e] != product[r*c+int(column)] {
				t.Fatal("backward for weights differs")
			}
		}
	}
}
