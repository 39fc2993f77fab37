package kerneltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"dynmo/src/kernel"
)

// rows returns the calls on n rows of a larger table, in no order, with and without the factors
// that may be absent. Gates are open or shut, where all values are on one side.
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
	all = append(all, of.example(call(kernel.GatherRows), ",no factor", gathered, of.bounded(exactly)),
		of.example(call(kernel.ScatterRows), ",shut", given, of.bounded(exactly)))
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
		judge = of.bounded(exactly)
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

// depths returns the two calls of a block that takes a share of the tokens of sequences with the
// given lengths. The router alone decides, or guesses do. Many logits are equal.
func (of maker) depths(lengths []int, capacity float64) (all []example) {
	offsets, r := offsetsOf(lengths), of.draw(givenSeed)
	n, most := int(offsets[len(lengths)]), 0
	for _, tokens := range lengths {
		most += kernel.First(capacity, tokens)
	}
	logits, guesses, positions := r.normal(n), r.normal(n), make([]int32, n)
	for i := range logits {
		switch {
		case i%3 == 0:
			logits[i] = 0.25
		case i%7 == 0:
			logits[i] = math.Copysign(0, float64(i%2)-0.5)
		}
		positions[i] = int32(3 * i)
	}
	for _, by := range []struct {
		note    string
		guesses any
		places  int
		one     bool
	}{{"", nil, most, false}, {",guesses", guesses, n + 2, true}} {
		settings := kernel.Depths{Capacity: capacity, Threshold: 0.6, One: by.one, Router: 0.5, Predictor: 0.25}
		call := func(op kernel.Op, places int) kernel.Call {
			return kernel.Call{Op: op, Dims: kernel.Dims{N: n, B: len(lengths), K: places}, Depths: settings}
		}
		note := fmt.Sprintf(",capacity=%g%s", capacity, by.note)
		given := map[string]any{"taken": filled(n), "logits": logits, "guesses": by.guesses, "offsets": offsets}
		if by.guesses == nil {
			given["dguesses"] = nil
		}
		take := of.example(call(kernel.TakeTokens, 0), note, given, of.bounded(ofDepths))
		given = map[string]any{"rows": filled(by.places), "listed": filled(by.places), "ends": filled(len(lengths) + 1),
			"taken": indices(take.operands[0].want), "logits": logits, "positions": positions, "offsets": offsets}
		all = append(all, take, of.example(call(kernel.ListTokens, by.places), note, given, of.bounded(ofDepths)))
	}
	return all
}

// ofDepths bounds results that are computed in float64 and rounded once; what is taken and
// where it is listed is exact.
func ofDepths(_ kernel.Dims, _, want values) values {
	bounds := values{}
	for name, x := range want {
		bounds[name] = make([]float64, len(x))
		for i := range x {
			if name == "dlogits" || name == "dguesses" || name == "factors" || name == "readings" && i > 2 {
				bounds[name][i] = math.Abs(x[i]) + 1e-3
			}
		}
	}
	return bounds
}
