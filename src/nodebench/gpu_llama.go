package nodebench

import (
	"math"

	"dynmo/src/kernel/ref"
)

// llama measures the parts of LLaMA's blocks and of mixtures beside products and attention. All of
// them are limited by memory.
func (g *gpu) llama() {
	for _, measure := range []func(){g.rmsnorm, g.swiglu, g.rotary, g.combine} {
		if measure(); g.err != nil {
			return
		}
		g.free()
	}
}

// rmsnorm is layernorm without a mean and a bias.
func (g *gpu) rmsnorm() { g.norm("rmsnorm", false) }

// swiglu measures the gated activation, (n, 2c) to (n, c).
func (g *gpu) swiglu() {
	k, d := g.BF16, g.BF16.DType()
	n, c := g.size(1<<16, 48), g.size(2816, 72)
	gateup, dout, out, dgateup := g.normal(n*2*c, d), g.normal(n*c, d), g.blank(n*c, d), g.blank(n*2*c, d)
	if g.err != nil {
		return
	}
	seconds := g.seconds(
		func() { k.SwiGLUForward(g.stream, out, gateup.mem, n, c) },
		func() { k.SwiGLUBackward(g.stream, dgateup, dout.mem, gateup.mem, n, c) })
	forward, backward := checker{unit: unit(d)}, checker{unit: unit(d)}
	for _, i := range spread(n, 16) {
		x, dy, want, dwant := gateup.row(i*2*c, 2*c), dout.row(i*c, c), make([]float64, c), make([]float64, 2*c)
		ref.SwiGLUForward(want, x, 1, c)
		ref.SwiGLUBackward(dwant, dy, x, 1, c)
		for j, got := range g.values(out, i*c, c, d) {
			forward.elementwise(got, want[j], 0)
		}
		for j, got := range g.values(dgateup, i*2*c, 2*c, d) {
			backward.elementwise(got, dwant[j], math.Abs(dy[j%c]*x[c+j%c]))
		}
	}
	one := float64(dout.mem.Bytes)
	g.bandwidth("swiglu_forward", 3*one, seconds[0], memoryReach, forward.wrong)
	g.bandwidth("swiglu_backward", 5*one, seconds[1], memoryReach, backward.wrong)
}

// rotary measures the rotation of queries and keys with heads of 128 channels. There are a quarter
// as many keys as queries. The rows are restored before every call.
func (g *gpu) rotary() {
	k, d := g.BF16, g.BF16.DType()
	n, heads, hs, places := g.size(1<<16, 48), 10, g.size(128, 16), g.size(4096, 17)
	width := (heads + 2) * hs
	given, qkv, positions := g.normal(n*width, d), g.blank(n*width, d), g.indices(n, places)
	table := g.normal(places*hs, d.Wide())
	if g.err != nil {
		return
	}
	restore := func() { g.stream.Copy(qkv, given.mem) }
	seconds := g.seconds(restore, func() { k.Rotary(g.stream, qkv, positions.mem, table.mem, n, heads, width, hs, false) })[1]
	check := checker{unit: unit(d)}
	for _, i := range spread(n, 16) {
		want := given.row(i*width, width)
		ref.Rotary(want, []int32{0}, table.row(int(positions.list[i])*hs, hs), heads, width, hs, false)
		for j, got := range g.values(qkv, i*width, width, d) {
			check.elementwise(got, want[j], 1)
		}
	}
	g.bandwidth("rotary", 2*float64(n*heads*hs)*float64(d.Size())+4*float64(n), seconds, 0, check.wrong)
}

// combine measures the weighted sum of two rows for each token, and the gradient of the
// weights:
//
//	rows       out, inp twice
//	gradient   dout, inp twice
func (g *gpu) combine() {
	const each = 2
	k, d := g.BF16, g.BF16.DType()
	n, c := g.size(1<<16, 48), g.size(1024, 64)
	inp, factor, dout, rows := g.normal(n*each*c, d), g.normal(n*each, d.Wide()), g.normal(n*c, d), g.indices(n*each, n*each)
	out, dfactor := g.blank(n*c, d), g.blank(n*each, d.Wide())
	if g.err != nil {
		return
	}
	seconds := g.seconds(
		func() { k.CombineRows(g.stream, out, inp.mem, rows.mem, factor.mem, n, each, c) },
		func() { k.CombineGradient(g.stream, dfactor, dout.mem, inp.mem, rows.mem, n, each, c) })
	sums, gradient := checker{unit: unit(d)}, checker{}
	for _, i := range spread(n, 16) {
		wants, gots := make([]total, c), g.values(dfactor, i*each, each, d.Wide())
		for j := range each {
			row, want := inp.row(int(rows.list[i*each+j])*c, c), total{}
			for x := range row {
				wants[x].add(factor.at(i*each+j) * row[x])
				want.add(dout.at(i*c+x) * row[x])
			}
			gradient.sum(gots[j], want)
		}
		for x, got := range g.values(out, i*c, c, d) {
			sums.sum(got, wants[x])
		}
	}
	one := float64(dout.mem.Bytes)
	g.bandwidth("combine_rows", (1+each)*one, seconds[0], 0, sums.wrong)
	g.bandwidth("combine_gradient", (1+each)*one, seconds[1], 0, gradient.wrong)
}
