package nodebench

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"

	"dynmo/src/tensor"
)

// attention measures causal attention of sequences of 2048 tokens, for several head sizes with 1024
// channels in all. Operations are those of the products on and below the diagonal: two forward,
// five backward, each 2·t²/2·size for a head.
func (g *gpu) attention() {
	b, t, c := g.size(8, 1), g.size(2048, 40), g.size(1024, 128)
	for _, size := range []int{32, 64, 128} {
		a := heads{gpu: g, b: b, t: t, c: c, size: size, count: c / size}
		if a.measure(); g.err != nil {
			return
		}
		g.free()
	}
}

// heads is attention with heads of one size, in bf16.
type heads struct {
	*gpu
	b, t, c, size, count int // count heads in a sequence

	qkv, dout             operand
	given, gradient, sums tensor.Mem // out, dqkv, lse
}

func (a *heads) measure() {
	k, d, n := a.BF16, a.BF16.DType(), a.b*a.t
	a.qkv, a.dout = a.normal(n*3*a.c, d), a.normal(n*a.c, d)
	a.given, a.sums, a.gradient = a.blank(n*a.c, d), a.blank(n*a.count, d.Wide()), a.blank(n*3*a.c, d)
	ends := make([]int32, a.b+1)
	for i := range ends {
		ends[i] = int32(i * a.t)
	}
	offsets := upload(a.bench, ends)
	if a.err != nil {
		return
	}
	seconds := a.seconds(
		func() {
			k.AttentionForward(a.stream, a.given, a.sums, a.qkv.mem, offsets, a.b, a.t, n, a.c, a.count, a.count)
		},
		func() {
			k.AttentionBackward(a.stream, a.gradient, a.dout.mem, a.qkv.mem, a.given, a.sums, offsets, a.b, a.t, n, a.c, a.count, a.count)
		})
	forward, backward := checker{unit: unit(d)}, checker{unit: unit(d)}
	for _, number := range spread(a.b*a.count, 4) {
		h := a.head(number)
		for _, i := range spread(a.t, 5) {
			h.checkForward(&forward, i)
			h.checkBackward(&backward, i)
		}
	}
	product := float64(a.b*a.count) * float64(a.t) * float64(a.t) * float64(a.size)
	a.rate(fmt.Sprintf("attention_forward_hs%d", a.size), 2*product, seconds[0], forward.wrong)
	a.rate(fmt.Sprintf("attention_backward_hs%d", a.size), 5*product, seconds[1], backward.wrong)
}

// head is one head of one sequence: its operands, and the results from the GPU.
type head struct {
	*heads
	sequence, first int         // number of the sequence; first channel of the head
	q, k, v, dy     [][]float64 // (t, size)
	out             [][]float64 // (t, size)
	lse             []float64   // (t)
	mean            []float64   // (t) Σ dout·out, which backward subtracts
}

func (a *heads) head(number int) head {
	d := a.BF16.DType()
	h := head{heads: a, sequence: number / a.count, first: number % a.count * a.size}
	h.lse = a.values(a.sums, number*a.t, a.t, d.Wide())
	outputs := a.values(a.given, h.sequence*a.t*a.c, a.t*a.c, d)
	for i := range a.t {
		row := (h.sequence*a.t + i) * 3 * a.c
		h.q = append(h.q, a.qkv.row(row+h.first, a.size))
		h.k = append(h.k, a.qkv.row(row+a.c+h.first, a.size))
		h.v = append(h.v, a.qkv.row(row+2*a.c+h.first, a.size))
		h.dy = append(h.dy, a.dout.row((h.sequence*a.t+i)*a.c+h.first, a.size))
		h.out = append(h.out, outputs[i*a.c+h.first:][:a.size])
		h.mean = append(h.mean, floats.Dot(h.dy[i], h.out[i]))
	}
	return h
}

// innerAbsolute returns Σ |x·y|.
func innerAbsolute(x, y []float64) (sum float64) {
	for i := range x {
		sum += math.Abs(x[i] * y[i])
	}
	return sum
}

func (h head) score(i, j int) float64 { return floats.Dot(h.q[i], h.k[j]) / math.Sqrt(float64(h.size)) }

// slope returns two numbers. p is the probability of row j in row i, from the GPU's lse. ds is the
// gradient of its score, a difference; most is the sum of the absolute values of its parts.
func (h head) slope(i, j int) (p, ds, most float64) {
	p = math.Exp(h.score(i, j) - h.lse[i])
	scale := p / math.Sqrt(float64(h.size))
	ds = scale * (floats.Dot(h.dy[i], h.v[j]) - h.mean[i])
	return p, ds, scale * (innerAbsolute(h.dy[i], h.v[j]) + innerAbsolute(h.dy[i], h.out[i]))
}

// checkForward checks row i of out and lse.
func (h head) checkForward(check *checker, i int) {
	largest, sum := math.Inf(-1), 0.0
	scores := make([]float64, i+1)
	for j := range scores {
		scores[j] = h.score(i, j)
		largest = max(largest, scores[j])
	}
	for _, s := range scores {
		sum += math.Exp(s - largest)
	}
	lse := largest + math.Log(sum)
	check.statistic(h.lse[i], lse)
	for x := range h.size {
		var want total
		for j, s := range scores {
			want.add(math.Exp(s-lse) * h.v[j][x])
		}
		check.rounded(h.out[i][x], want)
	}
}

// checkBackward checks row i of the gradients of queries, keys and values.
func (h head) checkBackward(check *checker, i int) {
	dq, dk, dv := make([]total, h.size), make([]total, h.size), make([]total, h.size)
	for j := range h.t {
		if j <= i {
			_, ds, most := h.slope(i, j)
			for x, k := range h.k[j] {
				dq[x].addOf(ds*k, most*math.Abs(k))
			}
		}
		if j >= i {
			p, ds, most := h.slope(j, i)
			for x, q := range h.q[j] {
				dk[x].addOf(ds*q, most*math.Abs(q))
				dv[x].add(p * h.dy[j][x])
			}
		}
	}
	row := (h.sequence*h.t + i) * 3 * h.c
	for part, want := range [][]total{dq, dk, dv} {
		got := h.values(h.gradient, row+part*h.c+h.first, h.size, h.BF16.DType())
		for x := range got {
			check.rounded(got[x], want[x])
		}
	}
}
