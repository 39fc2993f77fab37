package kerneltest

import (
	"math"
	"slices"

	"dynmo/src/kernel"
)

// crossEntropy returns the four calls on columns [first, first+v) of rows of
// logits. CrossEntropy has no more of them; for SoftmaxMerge and
// SoftmaxGradient as many as lie before lie behind, and targets are among all. There are rows far above and below
// 0, whose exponentials overflow and vanish unless the row's maximum is taken off.
func (of maker) crossEntropy(n, v, first int) []example {
	r, vocab := of.draw(givenSeed), first+v+first
	logits, targets, lastTargets := r.normal(n*vocab), r.indices(n, vocab), r.indices(n, first+v)
	for i := range logits {
		logits[i] = r.round(4*logits[i] + float64(i/vocab%3-1)*500) // row means -500, 0, 500
	}
	call := func(op kernel.Op, v, first int) kernel.Call {
		return kernel.Call{Op: op, Dims: kernel.Dims{N: n, V: v}, First: first, Scale: 0.125}
	}
	columns := func(lo, hi int) []float64 {
		x := make([]float64, 0, n*(hi-lo))
		for i := range n {
			x = append(x, logits[i*vocab:][lo:hi]...)
		}
		return x
	}
	merged := func(before []float64, lo, hi int, targets []int32) []float64 {
		return reference(call(kernel.SoftmaxMerge, hi-lo, lo), values{"out": make([]float64, 3*n), "before": before,
			"logits": columns(lo, hi), "targets": widened(targets)})["out"]
	}
	var before, lastBefore []float64
	if first > 0 {
		before, lastBefore = merged(nil, 0, first, targets), merged(nil, 0, first, lastTargets)
	}
	whole := merged(merged(before, first, first+v, targets), first+v, vocab, targets)
	slice := columns(first, first+v)
	bounds := of.bounded(softmaxBounds(v, first, whole))
	alike := slices.Clone(slice) // rows that have their largest logit twice, and some without one
	for i := range n {
		row := alike[i*v:][:v]
		row[v-1] = slices.Max(row)
		if i%4 == 3 {
			for j := range row {
				row[j] = []float64{math.NaN(), math.Inf(-1)}[j%2]
			}
		}
	}
	return []example{
		of.example(kernel.Call{Op: kernel.Likeliest, Dims: kernel.Dims{N: n, V: v}}, "", map[string]any{"out": filled(n), "logits": alike}, of.bounded(func(d kernel.Dims, _, _ values) values { return values{"out": make([]float64, d.N)} })),
		of.example(call(kernel.SoftmaxMerge, v, first), "",
			map[string]any{"before": before, "logits": slice, "targets": targets}, bounds),
		of.example(call(kernel.SoftmaxGradient, v, first), "",
			map[string]any{"logits": slice, "stats": whole, "targets": targets}, bounds),
		of.example(call(kernel.CrossEntropy, v, first), "",
			map[string]any{"before": lastBefore, "logits": slices.Clone(slice), "targets": lastTargets}, bounds),
	}
}

// softmaxBounds are those of all three calls: a probability has a relative error of
// the exponent's terms. whole is SoftmaxMerge's result for whole rows.
func softmaxBounds(v, first int, whole []float64) func(d kernel.Dims, before, want values) values {
	const scale = 0.125
	relative := func(i int) float64 { return 1 + 2*math.Abs(whole[i]) }
	return func(d kernel.Dims, before, want values) values {
		out, loss, dlogits := make([]float64, 3*d.N), 0.0, make([]float64, d.N*v)
		for i := range d.N {
			if want["out"] != nil {
				out[d.N+i] = want["out"][d.N+i] * relative(i)
			}
			loss += relative(i)
		}
		for i, g := range want["logits"] {
			p := g / scale
			if int(before["targets"][i/v]) == first+i%v {
				p++
				dlogits[i] = scale
			}
			dlogits[i] += scale * p * relative(i/v)
		}
		return values{"out": out, "loss": {loss}, "logits": dlogits}
	}
}
