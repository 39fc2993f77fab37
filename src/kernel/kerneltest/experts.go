package kerneltest

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// routed returns the three calls on choices of tokens among experts. An expert takes at most room
// tokens. Choices are by probability, and by given scores. Every fourth token has equal logits.
func (of maker) routed(n, experts, k, room int) (all []example) {
	r := of.draw(givenSeed)
	logits, scores := r.normal(n*experts), r.normal(n*experts)
	for i := range logits {
		if i/experts%4 == 3 {
			logits[i] = 0.5
		}
	}
	dims := kernel.Dims{N: n, E: experts, K: k}
	for _, by := range []struct {
		note    string
		shares  bool
		scores  any
		scaling float64
	}{{"", true, nil, 1}, {",scores", false, scores, 2.5}} {
		settings := kernel.Routing{Room: room, Shares: by.shares, Scale: by.scaling, Auxiliary: 0.5, Z: 0.25, Loss: 0.125}
		call := func(op kernel.Op) kernel.Call { return kernel.Call{Op: op, Dims: dims, Routing: settings} }
		note := fmt.Sprintf(",room=%d%s", room, by.note)
		given := map[string]any{"chosen": filled(n * k), "logits": logits, "scores": by.scores}
		route := of.example(call(kernel.RouteTokens), note, given, of.bounded(roundedOnce))
		chosen := indices(route.operands[0].want)
		given = map[string]any{"chosen": chosen, "router": route.operands[2].want}
		gradient := of.example(call(kernel.RouteGradient), note, given, of.bounded(roundedOnce))
		given = map[string]any{"places": filled(n * k), "tokens": filled(n * k), "ends": filled(experts + 1), "chosen": chosen,
			"weights": single(route.operands[1].want)}
		all = append(all, route, gradient, of.example(call(kernel.PlaceTokens), note, given, of.bounded(exactly)))
		some := kernel.Call{Op: kernel.PlaceTokens, Dims: dims, First: experts / 3}
		some.E = (experts + 1) / 2
		given = maps.Clone(given)
		given["ends"] = filled(some.E + 1)
		all = append(all, of.example(some, note+",some", given, of.bounded(exactly)))
	}
	inside := kernel.Call{Op: kernel.RouteTokens, Dims: dims, Routing: kernel.Routing{Room: room, Scale: 1, Z: 0.25}}
	given := map[string]any{"chosen": filled(n * k), "router": slices.Concat(logits, scores), "scores": scores, "logits": nil}
	within := of.example(inside, fmt.Sprintf(",room=%d,within router", room), given, of.bounded(roundedOnce))
	within.do = func(b kernel.Backend, s device.Stream, m []tensor.Mem) {
		b.RouteTokens(s, inside.Routing, m[0], m[1], m[2], m[3], tensor.Mem{}, m[2].Span(m[2].Bytes/2, m[2].Bytes/2), n, experts, k)
	}
	return append(all, within)
}

// scores returns the calls of squashed routers and balanced experts: logits are drawn, or in
// the first half of router.
func (of maker) scores(n, experts int) (all []example) {
	dims := kernel.Dims{N: n, E: experts}
	for _, op := range []kernel.Op{kernel.SquashLogits, kernel.SquashGradient} {
		all = append(all, of.example(kernel.Call{Op: op, Dims: dims}, "", nil, of.bounded(summed)))
	}
	balance := kernel.Call{Op: kernel.BalanceScores, Dims: dims, Routing: kernel.Routing{Deviation: 8, Rounds: 16}}
	all = append(all, of.example(balance, "", nil, of.bounded(summed)))
	balance.Routing = kernel.Routing{Rounds: 3}
	return append(all, of.example(balance, ",as they are,within router", map[string]any{"logits": nil}, of.bounded(summed)))
}

// summed bounds sums over experts of numbers that are of the size of 1, and scores, which
// are computed in float64.
func summed(d kernel.Dims, before, want values) values {
	bounds := values{}
	for name, x := range want {
		bounds[name] = make([]float64, len(x))
		for i := range x {
			bounds[name][i] = math.Abs(x[i]) + 1e-3
		}
	}
	return bounds
}

// filled returns numbers that the call must overwrite.
func filled(n int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = math.MinInt32
	}
	return x
}

func indices(x []float64) []int32 { return converted(x, func(x float64) int32 { return int32(x) }) }

// roundedOnce bounds results that are computed in float64 and rounded once: a gradient's terms
// are at most of the size of the weights' gradients. Choices, and counts, are exact.
func roundedOnce(d kernel.Dims, before, want values) values {
	bounds := values{}
	for name, x := range want {
		bounds[name] = make([]float64, len(x))
		for i := range x {
			switch {
			case name == "readings" && (i < 2 || i > 3), before[name] != nil && name == "chosen":
			case name == "dlogits":
				bounds[name][i] = 1
				for _, dw := range before["dweights"][i/d.E*d.K:][:d.K] {
					bounds[name][i] += 5 * math.Abs(dw)
				}
			default:
				bounds[name][i] = math.Abs(x[i]) + 1e-3
			}
		}
	}
	return bounds
}

// groups returns the three products of rows by the matrices of experts. rows has the number of rows
// of each expert. `more` further rows have no expert.
func (of maker) groups(rows []int, more, c, o, gap int) (all []example) {
	ends, n := offsetsOf(rows), more
	for _, count := range rows {
		n += count
	}
	d := kernel.Dims{N: n, C: c, O: o, E: len(rows), Gap: gap}
	for _, op := range []kernel.Op{kernel.GroupedForward, kernel.GroupedBackwardInput, kernel.GroupedBackwardWeight} {
		all = append(all, of.example(kernel.Call{Op: op, Dims: d}, fmt.Sprintf(",rows=%v", rows), map[string]any{"ends": ends}, nil))
	}
	return all
}
