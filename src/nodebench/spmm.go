package nodebench

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// Sparsities are the usual percentages of zeros for SpMM.
var Sparsities = []int{50, 65, 70, 80, 90, 95, 98}

// sparseReach is the speedup over the dense product to reach at a percentage of zeros: more than 1
// from 65 on, 4 at 90.
func sparseReach(percent int) float64 {
	switch {
	case percent >= 90:
		return 4
	case percent >= 65:
		return 1
	}
	return 0
}

// SpMM measures products with a weight (o, c) in compressed rows against dense products with the
// same weight. Zeros are at random places, or in blocks of side x side if side is above 1. A figure
// is dense seconds over sparse seconds at each percentage of zeros: forward, and both halves of
// backward. Dense and sparse calls alternate. Every element is compared with the dense result. SpMM
// needs a float32 backend on host memory. Errors come from memory or the device.
func SpMM(k kernel.Backend, dev device.Device, shape Shape, percents []int, side int, rounds Rounds) ([]Result, error) {
	name := "spmm"
	if side > 1 {
		name = fmt.Sprintf("spmm_block%d", side)
	}
	var results []Result
	for i, percent := range percents {
		b := newBench(k, dev)
		b.spmm(name, shape, percent, side, rounds.of(i, len(percents)))
		b.free()
		if b.err != nil {
			return nil, fmt.Errorf("spmm at %d %%: %w", percent, b.err)
		}
		results = append(results, b.results...)
	}
	b := newBench(k, dev)
	b.crossing(name, percents, results)
	return append(results, b.results...), b.err
}

// crossing adds the lowest percentage of zeros at which the three sparse products of a training
// step together are as fast as the dense ones. It interpolates between measured percentages. It is
// the first measured percentage if all are faster, 100 if none is.
func (b *bench) crossing(name string, percents []int, results []Result) {
	type point struct{ percent, sparse float64 } // seconds relative to the dense products
	var list []point
	wrong := 0
	for i, percent := range percents {
		sum := 0.0
		for _, r := range results[3*i : 3*i+3] {
			wrong += r.Wrong
			sum += 1 / r.Value / 3
		}
		list = append(list, point{float64(percent), sum})
	}
	slices.SortFunc(list, func(a, b point) int { return cmp.Compare(b.percent, a.percent) })
	from := 100.0
	for i, p := range list {
		if p.sparse > 1 {
			if i > 0 {
				above := list[i-1]
				from = above.percent - (above.percent-p.percent)*(1-above.sparse)/(p.sparse-above.sparse)
			}
			break
		}
		from = p.percent
	}
	b.add(name+"/crossing", single(math.Round(from)), "% zeros", 0, wrong)
}

func (b *bench) spmm(name string, s Shape, percent, side int, rounds Rounds) {
	draw := random.Keyed(uint64(percent)).NormFloat64
	n, c, o := s.N, s.C, s.O
	w := newBlocks(o, c, percent, side)
	dense, csr := upload(b, w.dense), w.csr(b, upload(b, w.values))
	inp, dout := b.matrix(n*c, draw), b.matrix(n*o, draw)
	out, sparseOut := b.matrix(n*o, nil), b.matrix(n*o, nil)
	dinp, sparseDinp := b.matrix(n*c, nil), b.matrix(n*c, nil)
	dweight, dvalues := b.matrix(o*c, nil), b.matrix(csr.NNZ, nil)
	if b.err != nil {
		return
	}
	forward := func() { b.k.MatmulForward(b.stream, out, inp, dense, none, n, c, o) }
	backwardInput := func() { b.k.MatmulBackwardInput(b.stream, dinp, dout, dense, n, c, o) }
	backwardWeight := func() { b.k.MatmulBackwardWeight(b.stream, dweight, none, dout, inp, n, c, o) }
	calls := []func(){
		forward, func() { b.k.SpMMForward(b.stream, sparseOut, inp, csr, none, n) },
		backwardInput, func() { b.k.SpMMBackwardInput(b.stream, sparseDinp, dout, csr, n) },
		backwardWeight, func() { b.k.SDDMM(b.stream, dvalues, none, dout, inp, csr, n) },
	}
	for _, call := range calls {
		call()
	}
	results := [][2][]float32{
		{b.download(sparseOut), b.download(out)},
		{b.download(sparseDinp), b.download(dinp)},
		{b.download(dvalues), w.entries(b.download(dweight))},
	}
	spans := b.rounds(rounds, calls...)

	// Products of the absolute values give the bounds for the check.
	for _, m := range []tensor.Mem{dense, inp, dout} {
		absolute(tensor.Of[float32](m))
	}
	b.stream.Zero(dweight)
	forward()
	backwardInput()
	backwardWeight()
	bounds := [][]float32{b.download(out), b.download(dinp), w.entries(b.download(dweight))}
	for i, call := range []string{"forward", "backward_input", "sddmm"} {
		b.add(fmt.Sprintf("%s/%s_%d", name, call, percent), spans.ratio(2*i, 2*i+1, 1), "ratio", sparseReach(percent),
			wrong(results[i][0], results[i][1], bounds[i]))
	}
}

// pattern is a matrix in dense and in compressed form. Its numbers are exact in bf16, so every type
// can use them.
type pattern struct {
	rows, cols     int
	side           int // of the blocks of zeros
	dense          []float32
	rowPtr, colIdx []int32
	values         []float32
}

// newBlocks returns a pattern whose zeros are in whole blocks of side x side. At least one block is
// not zero.
func newBlocks(rows, cols, percent, side int) *pattern {
	r := random.Keyed(uint64(rows), uint64(cols), uint64(percent))
	across := (cols + side - 1) / side
	kept := make([]bool, (rows+side-1)/side*across)
	for block := range kept {
		kept[block] = r.IntN(100) >= percent
	}
	if !slices.Contains(kept, true) {
		kept[0] = true
	}
	p := &pattern{rows: rows, cols: cols, side: side, dense: make([]float32, rows*cols), rowPtr: []int32{0}}
	for i := range rows {
		for j := range cols {
			if kept[i/side*across+j/side] {
				x := tensor.FromBF16(tensor.ToBF16(float32(r.NormFloat64())))
				p.dense[i*cols+j] = x
				p.colIdx, p.values = append(p.colIdx, int32(j)), append(p.values, x)
			}
		}
		p.rowPtr = append(p.rowPtr, int32(len(p.colIdx)))
	}
	return p
}

// csr returns the pattern in compressed rows on the device, with the given values.
func (p *pattern) csr(b *bench, values tensor.Mem) kernel.CSR {
	return kernel.CSR{
		Rows: p.rows, Cols: p.cols, NNZ: len(p.values), Blocks: p.side == kernel.Block && p.rows%p.side == 0 && p.cols%p.side == 0,
		RowPtr: upload(b, p.rowPtr), ColIdx: upload(b, p.colIdx), Values: values,
	}
}

// entries returns the elements of x (rows, cols) at the pattern's entries.
func (p *pattern) entries(x []float32) []float32 {
	var values []float32
	for r := range p.rows {
		for _, column := range p.colIdx[p.rowPtr[r]:p.rowPtr[r+1]] {
			values = append(values, x[r*p.cols+int(column)])
		}
	}
	return values
}

func absolute(x []float32) {
	for i := range x {
		x[i] = float32(math.Abs(float64(x[i])))
	}
}
