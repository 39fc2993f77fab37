package nodebench

import (
	"fmt"

	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// gpuSparsities are the percentages of zeros at which sparse products on GPUs are measured.
var gpuSparsities = []int{50, 60, 70, 75, 80, 90, 95, 98}

// gpuBlockSparsities are the percentages for zeros in whole blocks.
var gpuBlockSparsities = []int{50, 75, 90, 95}

// spmms measures sparse products of 4096 tokens with a weight (4096, 4096), in float32 and bf16. It
// compares them with cuSPARSE, and with the dense product of the same type and in TF32. It finds
// the lowest sparsity at which a sparse forward and backward are faster than dense ones. Then it
// compares products with zeros in whole blocks with the dense ones.
func (g *gpu) spmms() {
	g.sparsities("", gpuSparsities, 1, g.size(4096, 80))
	g.sparsities("_block32", gpuBlockSparsities, kernel.Block, g.size(4096, kernel.Block))
}

// sparsities measures products whose zeros are in blocks of side x side. of is the name of this
// structure in figures.
func (g *gpu) sparsities(of string, percents []int, side, rows int) {
	crossing := map[tensor.DType]int{}
	for _, percent := range percents {
		w := newBlocks(rows, g.size(4096, 64), percent, side)
		for _, k := range []kernel.Backend{g.F32, g.BF16} {
			p := &product{gpu: g, k: k, w: w, n: g.size(4096, 48), of: of, percent: percent}
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
		g.figure("spmm"+of+"_crossing_"+k.DType().String(), float64(crossing[k.DType()]), "% zeros, 100: none (paper: 75)", 0, 0)
	}
}

// product is the state of measuring one type at one sparsity.
type product struct {
	*gpu
	k          kernel.Backend
	w          *pattern
	n, percent int
	of         string // the structure, in names of figures

	inp, dout operand
	dense     tensor.Mem // the pattern's matrix, with its zeros
}

// measure reports whether the three products of a training step are faster than dense ones.
func (p *product) measure() bool {
	k, d, w, n := p.k, p.k.DType(), p.w, p.n
	rows, cols, entries := w.rows, w.cols, len(w.values)
	p.inp, p.dout = p.normal(n*cols, d), p.normal(n*rows, d)
	p.dense = p.repeated(w.dense, rows*cols, d)
	csr := w.csr(p.bench, p.repeated(w.values, entries, d))
	out, denseOut := p.blank(n*rows, d), p.blank(n*rows, d)
	dinp, dvalues := p.blank(n*cols, d), p.normal(entries, d.Wide())
	if p.err != nil {
		return false
	}
	p.k.SDDMM(p.stream, dvalues.mem, none, p.dout.mem, p.inp.mem, csr, n)
	sampled := p.checkValues(dvalues, false) // checked here, because later calls add to dvalues again
	names := []string{"spmm" + p.of + "_forward", "spmm" + p.of + "_dense", "spmm" + p.of + "_backward_input", "sddmm" + p.of}
	calls := []func(){
		func() { k.SpMMForward(p.stream, out, p.inp.mem, csr, none, n) },
		func() { k.MatmulForward(p.stream, denseOut, p.inp.mem, p.dense, none, n, cols, rows) },
		func() { k.SpMMBackwardInput(p.stream, dinp, p.dout.mem, csr, n) },
		func() { k.SDDMM(p.stream, dvalues.mem, none, p.dout.mem, p.inp.mem, csr, n) },
	}
	var rivals []contender
	if p.of == "" {
		rivals = p.rivals(csr)
	}
	for _, r := range rivals {
		calls = append(calls, r.run)
	}
	spans := p.spans(calls...)
	seconds := spans.medians()
	wrong := []int{p.checkForward(out), p.checkForward(denseOut), p.checkBackward(dinp), sampled}
	for i, name := range names {
		p.figure(p.name(name), seconds[i]*1e3, "ms", 0, wrong[i])
	}
	p.estimate(p.name("spmm"+p.of+"_to_dense"), spans.ratio(1, 0, 1), "ratio", 0, wrong[0]+wrong[1])
	for i, r := range rivals {
		at := len(names) + i
		p.figure(p.name(r.name), seconds[at]*1e3, r.unit, 0, r.wrong)
		p.figure(p.name(r.name+"_prepare"), r.prepared*1e3, "ms", 0, 0)
		p.estimate(p.name(r.ratio), spans.ratio(at, r.ours, 1), "ratio", r.reach, wrong[r.ours]+r.wrong)
	}
	p.forget()
	return seconds[0]+seconds[2]+seconds[3] < 3*seconds[1]
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

// checkValues counts the wrong gradients of entries. The gradients were added to random numbers.
// byRows means that dout is (rows, n) and inp is (cols, n).
func (p *product) checkValues(dvalues operand, byRows bool) int {
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
				column := int(w.colIdx[first+e])
				if byRows {
					want.add(p.dout.at(r*p.n+i) * p.inp.at(column*p.n+i))
				} else {
					want.add(p.dout.at(i*w.rows+r) * p.inp.at(i*w.cols+column))
				}
			}
			check.sum(got[e], want)
		}
	}
	return check.wrong
}
