package kerneltest

import (
	"fmt"
	"math"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// crossEntropy returns the three calls on columns [first, first+v) of rows of
// logits. CrossEntropy has no more of them; for the other two as many as lie
// before lie behind, and targets are among all. There are rows far above and below 0, whose exponentials
// overflow and vanish unless the row's maximum is taken off.
func (of maker) crossEntropy(n, v, first int) []call {
	const scale = 0.125
	r := of.draw()
	vocab := first + v + first
	logits, targets, lastTargets := r.normal(n*vocab), r.indices(n, vocab), r.indices(n, first+v)
	for i := range logits {
		logits[i] = r.round(4*logits[i] + float64(i/vocab%3-1)*500) // row means -500, 0, 500
	}
	columns := func(lo, hi int) floats {
		x := make(floats, 0, n*(hi-lo))
		for i := range n {
			x = append(x, logits[i*vocab:][lo:hi]...)
		}
		return x
	}
	slice, behind := columns(first, first+v), columns(first+v, vocab)
	var before, lastBefore doubles
	if first > 0 {
		before, lastBefore = make(doubles, 3*n), make(doubles, 3*n)
		ref.SoftmaxMerge(before, nil, columns(0, first), targets, n, first, 0)
		ref.SoftmaxMerge(lastBefore, nil, columns(0, first), lastTargets, n, first, 0)
	}
	merged, whole, lastMerged := make(doubles, 3*n), make(doubles, 3*n), make(doubles, 3*n)
	ref.SoftmaxMerge(merged, before, slice, targets, n, v, first)
	ref.SoftmaxMerge(whole, merged, behind, targets, n, first, first+v)

	grad, last := clone(slice), clone(slice)
	ref.SoftmaxGradient(grad, whole, targets, scale, n, v, first)
	loss := ref.CrossEntropy(lastMerged, lastBefore, last, lastTargets, scale, n, v, first)

	// A probability has a relative error of the exponent's terms.
	relative := func(i int) float64 { return 1 + 2*math.Abs(whole[i]) }
	mergedBound, lossBound := make([]float64, 3*n), 0.0
	for i := range n {
		mergedBound[n+i] = merged[n+i] * relative(i)
		lossBound += relative(i)
	}
	bound := func(grad []float64, targets []int32) []float64 {
		b := make([]float64, n*v)
		for i, g := range grad {
			p := g / scale
			if int(targets[i/v]) == first+i%v {
				p++
				b[i] = scale
			}
			b[i] += scale * p * relative(i/v)
		}
		return b
	}
	shape := fmt.Sprintf("n=%d,v=%d,first=%d", n, v, first)
	return []call{{
		"SoftmaxMerge/" + shape,
		[]operand{setDoubles(merged, mergedBound), in(before), in(slice), in(targets)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.SoftmaxMerge(s, m[0], m[1], m[2], m[3], n, v, first)
		},
	}, {
		"SoftmaxGradient/" + shape,
		[]operand{add(slice, grad, bound(grad, targets)), in(whole), in(targets)},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.SoftmaxGradient(s, m[0], m[1], m[2], scale, n, v, first)
		},
	}, {
		"CrossEntropy/" + shape,
		[]operand{
			setDoubles([]float64{loss}, []float64{lossBound}), setDoubles(lastMerged, mergedBound), in(lastBefore),
			add(slice, last, bound(last, lastTargets)), in(lastTargets),
		},
		func(k kernel.Backend, s device.Stream, m []tensor.Mem) {
			k.CrossEntropy(s, m[0], m[1], m[2], m[3], m[4], scale, n, v, first)
		},
	}}
}
