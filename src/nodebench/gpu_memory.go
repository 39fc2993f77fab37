package nodebench

import (
	"math"

	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// memoryReach is the share of a copy's bandwidth to reach by calls that mostly move memory.
// Operands are much larger than caches.
const memoryReach = 0.8

func (g *gpu) layernorm() { g.norm("layernorm", true) }

// norm measures a norm and both halves of its backward, (n, c) in bf16, LayerNorm if
// centred, else RMSNorm:
//
//	forward          inp, out              mean, rstd
//	backward_input   dinp twice, dout, inp
//	backward_weight  dout, inp
func (g *gpu) norm(name string, centred bool) {
	const eps = kernel.LayerNormEps
	k, d := g.BF16, g.BF16.DType()
	n, c := g.size(1<<16, 48), g.size(1024, 64)
	inp, dout, start, weight := g.normal(n*c, d), g.normal(n*c, d), g.normal(n*c, d), g.normal(c, d)
	out, rstd, dinp, dweight := g.blank(n*c, d), g.blank(n, d.Wide()), g.blank(n*c, d), g.normal(c, d.Wide())
	mean, bias, dbias := tensor.Mem{}, operand{}, operand{}
	if centred {
		mean, bias, dbias = g.blank(n, d.Wide()), g.normal(c, d), g.normal(c, d.Wide())
	}
	if g.err != nil {
		return
	}
	g.stream.Copy(dinp, start.mem)
	calls := []func(){
		func() { k.NormForward(g.stream, out, mean, rstd, inp.mem, weight.mem, bias.mem, n, c, eps) },
		func() { k.NormBackwardInput(g.stream, dinp, dout.mem, inp.mem, mean, rstd, weight.mem, n, c) },
		func() { k.NormBackwardWeight(g.stream, dweight.mem, dbias.mem, dout.mem, inp.mem, mean, rstd, n, c) },
	}
	for _, call := range calls {
		call()
	}
	forward, input := checker{unit: unit(d)}, checker{unit: unit(d)}
	w, b, means, rstds := weight.row(0, c), []float64(nil), make([]float64, n), g.values(rstd, 0, n, d.Wide())
	if centred {
		b, means = bias.row(0, c), g.values(mean, 0, n, d.Wide())
	}
	for _, i := range spread(n, 16) {
		want, x, dx, m, r := make([]float64, c), inp.row(i*c, c), start.row(i*c, c), []float64(nil), []float64{0}
		if centred {
			m = []float64{0}
		}
		ref.NormForward(want, m, r, x, w, b, 1, c, eps)
		for _, mean := range m {
			forward.statistic(means[i], mean)
		}
		forward.statistic(rstds[i], r[0])
		ref.NormBackwardInput(dx, dout.row(i*c, c), x, m, r, w, 1, c)
		got, dgot := g.values(out, i*c, c, d), g.values(dinp, i*c, c, d)
		for j := range c {
			most := 0.0
			if centred {
				most = math.Abs(want[j]-b[j]) + math.Abs(b[j])
			}
			forward.elementwise(got[j], want[j], most)
			input.elementwise(dgot[j], dx[j], 1+math.Abs(start.at(i*c+j)))
		}
	}
	weights := g.sums(dweight, c, func(j int, want *total) {
		for i := range n {
			want.add(dout.at(i*c+j) * (inp.at(i*c+j) - means[i]) * rstds[i])
		}
	})
	if centred {
		weights += g.sums(dbias, c, func(j int, want *total) {
			for i := range n {
				want.add(dout.at(i*c + j))
			}
		})
	}
	seconds, one, statistics := g.seconds(calls...), float64(inp.mem.Bytes), float64(rstd.Bytes+mean.Bytes)
	g.bandwidth(name+"_forward", 2*one+statistics, seconds[0], memoryReach, forward.wrong)
	g.bandwidth(name+"_backward_input", 4*one+statistics, seconds[1], memoryReach, input.wrong)
	g.bandwidth(name+"_backward_weight", 2*one+statistics, seconds[2], memoryReach, weights)
}

// sums counts the wrong sums among c. They were added to the random numbers in sums. add adds the
// terms of column j to want.
func (g *gpu) sums(sums operand, c int, add func(j int, want *total)) int {
	got, check := g.values(sums.mem, 0, c, tensor.F32), checker{}
	for _, j := range spread(c, 16) {
		var want total
		want.add(sums.at(j))
		add(j, &want)
		check.sum(got[j], want)
	}
	return check.wrong
}

// crossEntropy measures the loss and the gradient of (n, v) logits, which are read and overwritten.
// The logits are restored before every call.
func (g *gpu) crossEntropy() {
	k, d := g.BF16, g.BF16.DType()
	n, v := g.size(4096, 8), g.size(50257, 517)
	given, logits := g.normal(n*v, d), g.blank(n*v, d)
	loss, stats := g.blank(1, tensor.F64), g.blank(3*n, tensor.F64)
	targets := g.indices(n, v)
	if g.err != nil {
		return
	}
	restore := func() { g.stream.Copy(logits, given.mem) }
	call := func() {
		k.CrossEntropy(g.stream, loss, stats, none, logits, targets.mem, 1, n, v, 0)
	}
	seconds := g.seconds(restore, call)[1]
	check := checker{unit: unit(d)}
	got := g.values(stats, 0, 3*n, tensor.F64)
	for _, i := range spread(n, 8) {
		row, out := given.row(i*v, v), make([]float64, 3)
		ref.CrossEntropy(out, nil, row, targets.list[i:i+1], 1, 1, v, 0)
		for part, want := range out {
			check.statistic(got[part*n+i], want)
		}
		for j, x := range g.values(logits, i*v, v, d) {
			check.elementwise(x, row[j], 0)
		}
	}
	sum := 0.0
	for i := range n {
		sum += math.Log(got[n+i]) + got[i] - got[2*n+i]
	}
	check.within(g.values(loss, 0, 1, tensor.F64)[0], sum, tolerance*sum)
	g.bandwidth("cross_entropy", 2*float64(given.mem.Bytes), seconds, memoryReach, check.wrong)
}

// adamw measures the update of n bf16 weights with their master copy; half of the weights decay. It
// writes weights, reads and writes masters and both moments, and reads gradients.
func (g *gpu) adamw() {
	k, d := g.BF16, g.BF16.DType()
	n := g.size(1e8, 5000)
	w := g.blank(n, d)
	master, m, gradient := g.normal(n, d.Wide()), g.normal(n, d.Wide()), g.normal(n, d.Wide())
	v := g.drawn(n, d.Wide(), random.Keyed(7).Float64)
	if g.err != nil {
		return
	}
	a := kernel.AdamW{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Decayed: n / 2, GradScale: 0.5, Step: 3}
	masterOut := master.mem
	if d == d.Wide() { // a type without masters
		g.stream.Copy(w, master.mem)
		masterOut = none
	}
	call := func() { k.AdamW(g.stream, w, masterOut, m.mem, v.mem, gradient.mem, n, a) }
	call()
	exact, rounded := checker{}, checker{unit: unit(d)}
	for _, first := range windows(n) {
		count := min(window, n-first)
		a := a
		a.Decayed = min(max(0, a.Decayed-first), count)
		wantW, wantM, wantV := master.row(first, count), m.row(first, count), v.row(first, count)
		ref.AdamW(wantW, wantM, wantV, gradient.row(first, count), a)
		gotM, gotV := g.values(m.mem, first, count, d.Wide()), g.values(v.mem, first, count, d.Wide())
		gotW := g.values(w, first, count, d)
		for i := range count {
			exact.elementwise(gotM[i], wantM[i], 0.1)
			exact.elementwise(gotV[i], wantV[i], 0)
			rounded.elementwise(gotW[i], wantW[i], a.LR)
		}
		if !masterOut.IsZero() {
			for i, x := range g.values(masterOut, first, count, d.Wide()) {
				exact.elementwise(x, wantW[i], a.LR)
			}
		}
	}
	seconds := g.seconds(call)[0]
	wide := float64(d.Wide().Size())
	bytes := float64(n) * (float64(d.Size()) + 7*wide)
	g.bandwidth("adamw", bytes, seconds, memoryReach, exact.wrong+rounded.wrong)
}

// gelu measures the activation: forward reads one and writes one array of n,
// backward reads two and writes one.
func (g *gpu) gelu() {
	k, d := g.BF16, g.BF16.DType()
	n := g.size(1<<28, 5000)
	inp, dout, out, dinp := g.normal(n, d), g.normal(n, d), g.blank(n, d), g.blank(n, d)
	if g.err != nil {
		return
	}
	seconds := g.seconds(
		func() { k.GELUForward(g.stream, out, inp.mem, n) },
		func() { k.GELUBackward(g.stream, dinp, inp.mem, dout.mem, n) })
	forward, backward := checker{unit: unit(d)}, checker{unit: unit(d)}
	for _, first := range windows(n) {
		x := inp.row(first, min(window, n-first))
		want, dwant := make([]float64, len(x)), make([]float64, len(x))
		ref.GELUForward(want, x)
		ref.GELUBackward(dwant, x, dout.row(first, len(x)))
		got, dgot := g.values(out, first, len(x), d), g.values(dinp, first, len(x), d)
		for i := range x {
			forward.within(got[i], want[i], (tolerance*10+forward.unit)*math.Abs(want[i])+tolerance)
			slack := tolerance * math.Abs(dout.at(first+i))
			backward.within(dgot[i], dwant[i], (tolerance*10+backward.unit)*math.Abs(dwant[i])+slack)
		}
	}
	one := float64(inp.mem.Bytes)
	g.bandwidth("gelu_forward", 2*one, seconds[0], 0, forward.wrong)
	g.bandwidth("gelu_backward", 3*one, seconds[1], 0, backward.wrong)
}
