package model

import "dynmo/src/tensor"

// Sizes returns the bytes of the memory that one microbatch needs in this
// layer: saved from forward to the backward for weights, held from the
// backward for inputs to the one for weights.
func (l *Layer) Sizes(x *Exec) (saved, held int64) {
	for _, p := range l.parts {
		s, h := p.sizes(x)
		saved += s
		held += h
	}
	var between cutter // the gradients that pass from part to part
	for range len(l.parts) - 1 {
		between.take(x.N()*l.config.Hidden, l.dtype)
	}
	return saved, held + between.off
}

// Output returns where Forward leaves its result inside saved; absent for the
// chain's last layer.
func (l *Layer) Output(x *Exec, saved tensor.Mem) tensor.Mem {
	regions := l.walk(x, saved)
	last := len(l.parts) - 1
	return l.parts[last].output(x, regions[last])
}

// mostParts is the most parts that a layer has.
const mostParts = 2

// walk returns the saved memory of every part.
func (l *Layer) walk(x *Exec, saved tensor.Mem) (regions [mostParts]tensor.Mem) {
	off := int64(0)
	for i, p := range l.parts {
		size, _ := p.sizes(x)
		regions[i] = saved.Span(off, size)
		off += size
	}
	return regions
}

// Forward computes Output from inp, the Output of the layer before (see
// Exec.Boundary). The embedding takes no inp; what it and the head need of the
// data is put in place by Feed.
func (l *Layer) Forward(x *Exec, saved, inp tensor.Mem) {
	regions := l.walk(x, saved)
	for i, p := range l.parts {
		p.forward(x, regions[i], inp)
		inp = p.output(x, regions[i])
	}
}

// gradient describes one part's place in a backward pass.
type gradient struct {
	part                         part
	saved, held, inp, dout, grad tensor.Mem
}

// backward returns, first part first, what each part's backward passes work
// on: dout enters the last part, din leaves the first.
func (l *Layer) backward(x *Exec, saved, held, inp, dout, din tensor.Mem) (list [mostParts]gradient) {
	room := cutter{m: held}
	regions := l.walk(x, saved)
	for i, p := range l.parts {
		_, size := p.sizes(x)
		g := gradient{part: p, saved: regions[i], inp: inp, dout: dout, grad: din}
		g.held = room.bytes(size)
		if i > 0 { // the gradient between part i-1 and part i
			g.grad = room.take(x.N()*l.config.Hidden, l.dtype)
			list[i-1].dout = g.grad
		}
		list[i] = g
		inp = p.output(x, regions[i])
	}
	return list
}

// BackwardInput sets din, the gradient of inp, from dout, that of the output,
// and leaves in held what BackwardWeight needs. The chain's last layer takes no
// dout, the embedding gives no din.
func (l *Layer) BackwardInput(x *Exec, saved, held, inp, dout, din tensor.Mem) {
	list := l.backward(x, saved, held, inp, dout, din)
	for i := len(l.parts) - 1; i >= 0; i-- {
		g := list[i]
		g.part.backwardInput(x, g.saved, g.held, g.inp, g.dout, g.grad)
	}
}

// BackwardWeight adds to the gradients of the layer's parameters. All memory
// is as BackwardInput left it.
func (l *Layer) BackwardWeight(x *Exec, saved, held, inp, dout tensor.Mem) {
	list := l.backward(x, saved, held, inp, dout, tensor.Mem{})
	for i := len(l.parts) - 1; i >= 0; i-- {
		g := list[i]
		g.part.backwardWeight(x, g.saved, g.held, g.inp, g.dout)
	}
}

// Feed puts the data of a microbatch in place: tokens (n) in the embedding,
// targets (n) in the head and its slices, nothing elsewhere.
func (l *Layer) Feed(x *Exec, saved tensor.Mem, tokens, targets []int32) {
	switch p := l.parts[0].(type) {
	case *embedding:
		x.Stream.Copy(p.saved(x, &cutter{m: saved}).tokens, tensor.From(tokens))
	case *head:
		x.Stream.Copy(p.saved(x, &cutter{m: saved}).targets, tensor.From(targets))
	}
}

// Feeds reports whether the layer needs data.
func (l *Layer) Feeds() bool { return l.ID == l.config.Embedding() || l.ID >= l.config.Head() }

// Loss returns where Forward of the chain's last layer leaves the sum of the
// tokens' losses, one F64.
func (l *Layer) Loss(x *Exec, saved tensor.Mem) tensor.Mem {
	return l.parts[0].(*head).saved(x, &cutter{m: saved}).loss
}
