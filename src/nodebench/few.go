package nodebench

import (
	"fmt"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/random"
)

// Few measures products of few rows with weights, at the shapes of a block of GPT-2 124M, by two libraries in
// turn:
//
//	gemm/onednn_over_blas = seconds of the BLAS / seconds of oneDNN
//
// Equal operands must give equal results, up to the rounding of sums. Errors come from memory or the device.
func Few(blas, onednn kernel.Backend, dev device.Device, rows []int, rounds Rounds) ([]Result, error) {
	b := newBench(blas, dev)
	defer b.free()
	for i, n := range rows {
		for j, s := range GPT2 {
			b.few(onednn, Shape{n, s.C, s.O}, uint64(j), rounds.of(i*len(GPT2)+j, len(rows)*len(GPT2)))
		}
	}
	if b.err != nil {
		return nil, fmt.Errorf("gemm: %w", b.err)
	}
	return b.results, nil
}

func (b *bench) few(onednn kernel.Backend, s Shape, seed uint64, rounds Rounds) {
	draw := random.Keyed(seed).NormFloat64
	n, c, o := s.N, s.C, s.O
	inp, weight, dout := b.matrix(n*c, draw), b.matrix(o*c, draw), b.matrix(n*o, draw)
	outs, dinps := [2][]float32{}, [2][]float32{}
	out, dinp := b.matrix(n*o, nil), b.matrix(n*c, nil)
	if b.err != nil {
		return
	}
	var calls []func()
	for _, k := range []kernel.Backend{b.k, onednn} {
		calls = append(calls,
			func() { k.MatmulForward(b.stream, out, inp, weight, none, n, c, o) },
			func() { k.MatmulBackwardInput(b.stream, dinp, dout, weight, n, c, o) })
	}
	for i := range outs {
		calls[2*i]()
		calls[2*i+1]()
		outs[i], dinps[i] = b.download(out), b.download(dinp)
	}
	spans := b.rounds(rounds, calls...)
	for i, name := range []string{"forward", "backward_input"} {
		got, want, depth := outs[1], outs[0], c
		if i == 1 {
			got, want, depth = dinps[1], dinps[0], o
		}
		check := checker{}
		for j := range got { // terms are products of normal numbers
			check.within(float64(got[j]), float64(want[j]), tolerance*float64(depth))
		}
		b.add(fmt.Sprintf("gemm/onednn_over_blas_%s_%dx%dx%d", name, n, c, o), spans.ratio(i, 2+i, 1), "ratio", 0, check.wrong)
	}
}
