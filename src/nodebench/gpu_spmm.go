package nodebench

import (
	"fmt"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// GPUSparsities are the percentages of zeros that sparse products on GPUs are
// measured at.
var GPUSparsities = []int{50, 60, 70, 75, 80, 90, 95, 98}

// rival is a backend that can call NVIDIA's sparse library too.
type rival interface {
	SpMMByCUSPARSE(s device.Stream, out, inp tensor.Mem, w kernel.CSR, n int)
}

// spmms measures sparse products of 4096 tokens with a weight (4096, 4096), in
// float32 and bf16, against the dense product of the same type and against
// cuSPARSE, and from which sparsity on ours, forward and backward, beat the dense ones.
func (g *gpu) spmms() {
	crossing := map[tensor.DType]int{}
	for _, percent := range GPUSparsities {
		w := newPattern(g.size(4096, 80), g.size(4096, 64), percent)
		for _, k := range []kernel.Backend{g.F32, g.BF16} {
			p := &product{gpu: g, k: k, w: w, n: g.size(4096, 48), percent: percent}
			faster := p.measure()
			if g.err != nil {
				return
			}
			g.free()
			switch first, ok := crossing[k.DType()]; {
			case !faster:
				crossing[k.DType()] = 100
			case !ok || first == 100:
				crossing[k.DType()] = percent
			}
		}
	}
	for _, k := range []kernel.Backend{g.F32, g.BF16} {
		g.figure("spmm_crossing_"+k.DType().String(), float64(crossing[k.DType()]), "% zeros, 100: none (paper: 75)", 0, 0)
	}
}

// product is the measurement of one type at one sparsity.
type product struct {
	*gpu
	k          kernel.Backend
	w          *pattern
	n, percent int

	inp, dout operand
}

// measure reports whether the three products of a training step are faster than dense ones.
func (p *product) measure() bool {
	k, d, w, n := p.k, p.k.DType(), p.w, p.n
	rows, cols, entries := w.rows, w.cols, len(w.values)
	p.inp, p.dout = p.normal(n*cols, d), p.normal(n*rows, d)
	dense := p.repeated(w.dense, rows*cols, d)
	csr := w.csr(p.bench, p.repeated(w.values, entries, d))
	out, denseOut, rivalOut := p.blank(n*rows, d), p.blank(n*rows, d), p.blank(n*rows, d)
	dinp, dvalues := p.blank(n*cols, d), p.normal(entries, d.Wide())
	if p.err != nil {
		return false
	}
	p.k.SDDMM(p.stream, dvalues.mem, none, p.dout.mem, p.inp.mem, csr, n)
	sampled := p.checkValues(dvalues) // later calls add to it again
	names := []string{"spmm_forward", "spmm_dense", "spmm_backward_input", "sddmm"}
	calls := []func(){
		func() { k.SpMMForward(p.stream, out, p.inp.mem, csr, none, n) },
		func() { k.MatmulForward(p.stream, denseOut, p.inp.mem, dense, none, n, cols, rows) },
		func() { k.SpMMBackwardInput(p.stream, dinp, p.dout.mem, csr, n) },
		func() { k.SDDMM(p.stream, dvalues.mem, none, p.dout.mem, p.inp.mem, csr, n) },
	}
	if other := p.rival(func(other rival) { other.SpMMByCUSPARSE(p.stream, rivalOut, p.inp.mem, csr, n) }); other != nil {
		names, calls = append(names, "spmm_cusparse"), append(calls, other)
	}
	spans := p.spans(calls...)
	seconds := spans.medians()
	wrong := []int{p.checkForward(out), p.checkForward(denseOut), p.checkBackward(dinp), sampled}
	if len(calls) > len(wrong) {
		wrong = append(wrong, p.checkForward(rivalOut))
	}
	for i, name := range names {
		p.figure(p.name(name), seconds[i]*1e3, "ms", 0, wrong[i])
	}
	p.estimate(p.name("spmm_to_dense"), spans.ratio(1, 0, 1), "ratio", 0, wrong[0]+wrong[1])
	if len(calls) > 4 {
		reach := 0.0
		if k == p.F32 {
			reach = 1
		}
		p.estimate(p.name("spmm_to_cusparse"), spans.ratio(4, 0, 1), "ratio", reach, wrong[0]+wrong[4])
	}
	return seconds[0]+seconds[2]+seconds[3] < 3*seconds[1]
}

// rival returns a call of NVIDIA's library, after it was tried; nil where there is
// none. On a GPU that is an error, which costs no other figure.
func (p *product) rival(call func(rival)) func() {
	other, ok := p.k.(rival)
	if !ok || p.Emulated {
		return nil
	}
	if p.err = p.stream.Sync(); p.err != nil {
		return nil
	}
	call(other)
	if err := p.stream.Sync(); err != nil {
		p.lacking = fmt.Errorf("%s at %d %%: %w", p.k.DType(), p.percent, err)
		return nil
	}
	return func() { call(other) }
}

// name returns the name of a figure: figure_type_percent.
func (p *product) name(figure string) string {
	return fmt.Sprintf("%s_%v_%d", figure, p.k.DType(), p.percent)
}

// checkForward counts the wrong elements of out (n, rows) = inp·wᵀ.
func (p *product) checkForward(out tensor.Mem) int {
	w := p.w
	return p.sampled(out, p.n, w.rows, p.k.DType(), func(i, r int, want *total) {
		for e := w.rowPtr[r]; e < w.rowPtr[r+1]; e++ {
			want.add(p.inp.at(i*w.cols+int(w.colIdx[e])) * float64(w.values[e]))
		}
	})
}

// checkBackward counts the wrong elements of dinp (n, cols) = dout·w.
func (p *product) checkBackward(dinp tensor.Mem) int {
	w := p.w
	return p.sampled(dinp, p.n, w.cols, p.k.DType(), func(i, j int, want *total) {
		for r := range w.rows {
			want.add(p.dout.at(i*w.rows+r) * float64(w.dense[r*w.cols+j]))
		}
	})
}

// checkValues counts the wrong gradients of entries, which were added to random numbers.
func (p *product) checkValues(dvalues operand) int {
	check, w := checker{}, p.w
	for _, r := range spread(w.rows, 16) {
		first, last := int(w.rowPtr[r]), int(w.rowPtr[r+1])
		if first == last {
			continue
		}
		got := p.values(dvalues.mem, first, last-first, p.k.DType().Wide())
		for _, e := range spread(last-first, 16) {
			var want total
			want.add(dvalues.at(first + e))
			for i := range p.n {
				want.add(p.dout.at(i*w.rows+r) * p.inp.at(i*w.cols+int(w.colIdx[first+e])))
			}
			check.sum(got[e], want)
		}
	}
	return check.wrong
}
