package kernel

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

func (k *Calls) SquashLogits(s device.Stream, router, squashed, inp, weight tensor.Mem, n, experts int) {
	k.run(s, SquashLogits, Dims{N: n, E: experts}, router, squashed, inp, weight)
}

func (k *Calls) SquashGradient(s device.Stream, dinp, dout, inp, weight tensor.Mem, n, experts int) {
	k.run(s, SquashGradient, Dims{N: n, E: experts}, dinp, dout, inp, weight)
}

func (k *Calls) BalanceScores(s device.Stream, router, logits tensor.Mem, n, experts int) {
	k.run(s, BalanceScores, Dims{N: n, E: experts}, router, logits)
}

func (k *Calls) RouteTokens(s device.Stream, r Routing, chosen, weights, router, readings, logits, scores tensor.Mem, n, experts, top int) {
	k.pending.Routing = r
	k.run(s, RouteTokens, Dims{N: n, K: top, E: experts}, chosen, weights, router, readings, logits, scores)
}

func (k *Calls) RouteGradient(s device.Stream, r Routing, dlogits, dweights, chosen, router tensor.Mem, n, experts, top int) {
	k.pending.Routing = r
	k.run(s, RouteGradient, Dims{N: n, K: top, E: experts}, dlogits, dweights, chosen, router)
}

func (k *Calls) PlaceTokens(s device.Stream, places, tokens, factors, ends, chosen, weights tensor.Mem, n, experts, top, first int) {
	k.pending.First = first
	k.run(s, PlaceTokens, Dims{N: n, K: top, E: experts}, places, tokens, factors, ends, chosen, weights)
}

func (k *Calls) GroupedForward(s device.Stream, out, inp, weights, ends tensor.Mem, n, c, o, experts, gap int) {
	k.run(s, GroupedForward, Dims{N: n, C: c, O: o, E: experts, Gap: gap}, out, inp, weights, ends)
}

func (k *Calls) GroupedBackwardInput(s device.Stream, dinp, dout, weights, ends tensor.Mem, n, c, o, experts, gap int) {
	k.run(s, GroupedBackwardInput, Dims{N: n, C: c, O: o, E: experts, Gap: gap}, dinp, dout, weights, ends)
}

func (k *Calls) GroupedBackwardWeight(s device.Stream, dweights, dout, inp, ends tensor.Mem, n, c, o, experts, gap int) {
	k.run(s, GroupedBackwardWeight, Dims{N: n, C: c, O: o, E: experts, Gap: gap}, dweights, dout, inp, ends)
}
