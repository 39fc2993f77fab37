package kerneltest

import (
	"math"
	"math/rand/v2"
	"slices"

	"dynmo/src/kernel"
)

// rows returns the calls on n of the rows of a table of some more, in no order, with the
// factors that may be absent and without; and gates that are open or shut, where values
// are those of one side.
func (of maker) rows(n, c int) []example {
	r, table := of.draw(givenSeed), n+n/2+1
	given := map[string]any{
		"rows": chosen(r.Rand, n, table), "inp": r.normal(table * c), "out": r.normal(table * c), "dlogits": r.normal(table),
	}
	gathered := map[string]any{"rows": given["rows"], "inp": given["inp"]}
	call := func(op kernel.Op) kernel.Call { return kernel.Call{Op: op, Dims: kernel.Dims{N: n, C: c}} }
	all := []example{
		of.example(call(kernel.GatherRows), "", gathered, nil),
		of.example(call(kernel.ScatterRows), "", given, nil),
		of.example(call(kernel.GateGradient), "", given, differences),
	}
	gathered["factor"], given["factor"], given["keep"] = nil, nil, make([]float64, n)
	all = append(all, of.example(call(kernel.GatherRows), ",no factor", gathered, bounded(exactly)),
		of.example(call(kernel.ScatterRows), ",shut", given, bounded(exactly)))
	return all
}

// combine returns the calls on k rows each of a table that has fewer, so that rows
// repeat, some of them absent; and rows that are copies.
func (of maker) combine(n, k, c int) []example {
	r, table := of.draw(givenSeed), n*k/2+1
	rows := r.indices(n*k, table)
	for i := range rows {
		if i%5 == 3 {
			rows[i] = -1
		}
	}
	given := map[string]any{"rows": rows, "inp": r.normal(table * c)}
	call := func(op kernel.Op) kernel.Call { return kernel.Call{Op: op, Dims: kernel.Dims{N: n, C: c, K: k}} }
	all := []example{
		of.example(call(kernel.CombineRows), "", given, nil),
		of.example(call(kernel.CombineRowsAdd), "", given, nil),
		of.example(call(kernel.CombineGradient), "", given, nil),
	}
	given["factor"] = nil
	judge := termwise(reference)
	if k == 1 {
		judge = bounded(exactly)
	}
	return append(all, of.example(call(kernel.CombineRows), ",no factor", given, judge))
}

// chosen returns n different numbers in [0, limit).
func chosen(r *rand.Rand, n, limit int) []int32 {
	list := make([]int32, 0, n)
	for _, at := range r.Perm(limit)[:n] {
		list = append(list, int32(at))
	}
	return slices.Clip(list)
}

// exactly bounds nothing: values are copies.
func exactly(kernel.Dims, values, values) values { return values{} }

// differences is the judge of GateGradient: terms are products with a difference, whose
// error is bounded by the sum of its two sides.
func differences(c kernel.Call, x values) (want, bound values) {
	want = reference(c, x)
	sum := abs(x["dlogits"])
	for i, row := range x["rows"] {
		for j := i * c.C; j < (i+1)*c.C; j++ {
			sum[int(row)] += math.Abs(x["factor"][i]*x["dout"][j]) * (math.Abs(x["a"][j]) + math.Abs(x["b"][j]))
		}
	}
	return want, values{"dlogits": sum}
}
