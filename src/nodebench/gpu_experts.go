package nodebench

import "dynmo/src/tensor"

// experts measures the products of a mixture of 8 experts: forward, backward for inputs and
// backward for weights, one call each. The last expert has eight times the rows of the first.
func (g *gpu) experts() {
	const count, gap = 8, 64
	k, d := g.BF16, g.BF16.DType()
	n, c, o := g.size(1<<15, 72), g.size(2048, 24), g.size(4096, 40)
	ends := make([]int32, count+1)
	for e := range count {
		ends[e+1] = ends[e] + int32((e+1)*n/(count*(count+1)/2))
	}
	worked, stride := int(ends[count]), o*c+gap
	inp, dout, w := g.normal(n*c, d), g.normal(n*o, d), g.normal(count*stride-gap, d)
	start := g.normal(count*stride-gap, d.Wide())
	out, dinp, dw := g.blank(n*o, d), g.blank(n*c, d), g.blank(count*stride-gap, d.Wide())
	lists := upload(g.bench, ends)
	if g.err != nil {
		return
	}
	restore := func() { g.stream.Copy(dw, start.mem) }
	seconds := g.seconds(
		func() { k.GroupedForward(g.stream, out, inp.mem, w.mem, lists, n, c, o, count, gap) },
		func() { k.GroupedBackwardInput(g.stream, dinp, dout.mem, w.mem, lists, n, c, o, count, gap) },
		restore,
		func() { k.GroupedBackwardWeight(g.stream, dw, dout.mem, inp.mem, lists, n, c, o, count, gap) })
	forward, backward, weight := checker{unit: unit(d)}, checker{unit: unit(d)}, checker{}
	for e := range count {
		lo, hi, first := int(ends[e]), int(ends[e+1]), e*stride
		for _, i := range spread(hi-lo, 2) {
			row := lo + i
			x, dy := inp.row(row*c, c), dout.row(row*o, o)
			got, dgot := g.values(out, row*o, o, d), g.values(dinp, row*c, c, d)
			for _, j := range spread(o, 8) {
				forward.sum(got[j], products(x, w.row(first+j*c, c)))
			}
			for _, j := range spread(c, 8) {
				column := make([]float64, o)
				for r := range column {
					column[r] = w.at(first + r*c + j)
				}
				backward.sum(dgot[j], products(dy, column))
			}
		}
		for _, at := range spread(o*c, 4) {
			want := total{}
			want.add(start.at(first + at))
			for row := lo; row < hi; row++ {
				want.add(dout.at(row*o+at/c) * inp.at(row*c+at%c))
			}
			weight.sum(g.values(dw, first+at, 1, tensor.F32)[0], want)
		}
	}
	operations := 2 * float64(worked) * float64(c) * float64(o)
	g.rate("experts_forward", operations, seconds[0], forward.wrong)
	g.rate("experts_backward_input", operations, seconds[1], backward.wrong)
	g.rate("experts_backward_weight", operations, seconds[3], weight.wrong)
}

// products returns the sum of x·y.
func products(x, y []float64) (sum total) {
	for i := range x {
		sum.add(x[i] * y[i])
	}
	return sum
}
