package model

import "dynmo/src/tensor"

// Sizes returns the bytes of the memory that one microbatch needs in this
// layer: saved from forward to the backward for weights, held from the
// backward for inputs to the one for weights.
func (l *Layer) Sizes(x *Exec) (saved, held int64) {
	for i, p := range l.parts {
		s, h := p.sizes(x)
		saved += s
		held += h
		if i > 0 { // the gradient that passes from part to part
			held += aligned(l.parts[i-1].leaves().Bytes(x, x.N()))
		}
	}
	return saved, held
}

// Leaves returns what the layer passes on.
func (l *Layer) Leaves() Width { return l.parts[len(l.parts)-1].leaves() }

// Output returns where Forward leaves its result inside saved; absent where
// nothing leaves.
func (l *Layer) Output(x *Exec, b *Batch, saved tensor.Mem) tensor.Mem {
	regions := l.regions(x, saved)
	last := len(l.parts) - 1
	return l.parts[last].output(x, b, regions[last])
}

// mostParts is the most parts that a layer has.
const mostParts = 2

// regions returns the saved memory of every part.
func (l *Layer) regions(x *Exec, saved tensor.Mem) (regions [mostParts]tensor.Mem) {
	off := int64(0)
	for i, p := range l.parts {
		size, _ := p.sizes(x)
		regions[i] = saved.Span(off, size)
		off += size
	}
	return regions
}

// Forward computes Output from inp, the Output of the layer before. The first
// layer takes no inp; what layers need of the data is put in place by Feed.
func (l *Layer) Forward(x *Exec, b *Batch, saved, inp tensor.Mem) error {
	regions := l.regions(x, saved)
	for i, p := range l.parts {
		if err := p.forward(x, b, regions[i], inp); err != nil {
			return err
		}
		inp = p.output(x, b, regions[i])
	}
	return nil
}

// gradient describes one part's place in a backward pass.
type gradient struct {
	part                         part
	saved, held, inp, dout, grad tensor.Mem
}

// backward returns, first part first, what each part's backward passes work
// on: dout enters the last part, din leaves the first.
func (l *Layer) backward(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) (list [mostParts]gradient) {
	room := cutter{m: held}
	regions := l.regions(x, saved)
	for i, p := range l.parts {
		_, size := p.sizes(x)
		g := gradient{part: p, saved: regions[i], inp: inp, dout: dout, grad: din}
		g.held = room.bytes(size, size)
		if i > 0 { // the gradient between part i-1 and part i
			between := l.parts[i-1].leaves()
			g.grad = room.bytes(between.Bytes(x, b.Capacity), between.Bytes(x, b.Tokens))
			list[i-1].dout = g.grad
		}
		list[i] = g
		inp = p.output(x, b, regions[i])
	}
	return list
}

// BackwardInput sets din, the gradient of inp, from dout, that of the output,
// and leaves in held what BackwardWeight needs. Without din only that is done.
// The chain's last layer takes no dout.
func (l *Layer) BackwardInput(x *Exec, b *Batch, saved, held, inp, dout, din tensor.Mem) error {
	list := l.backward(x, b, saved, held, inp, dout, din)
	for i := len(l.parts) - 1; i >= 0; i-- {
		g := &list[i]
		if err := g.part.backwardInput(x, b, g.saved, g.held, g.inp, g.dout, g.grad); err != nil {
			return err
		}
	}
	return nil
}

// BackwardWeight adds to the gradients of the parameters that are not frozen. All
// memory is as BackwardInput left it.
func (l *Layer) BackwardWeight(x *Exec, b *Batch, saved, held, inp, dout tensor.Mem) error {
	list := l.backward(x, b, saved, held, inp, dout, tensor.Mem{})
	for i := len(l.parts) - 1; i >= 0; i-- {
		g := &list[i]
		if err := g.part.backwardWeight(x, b, g.saved, g.held, g.inp, g.dout); err != nil {
			return err
		}
	}
	return nil
}

// Feeds reports whether the layer reads the data of a microbatch.
func (l *Layer) Feeds() bool {
	for _, p := range l.parts {
		if p.feeds() {
			return true
		}
	}
	return false
}

// Feed puts the tokens and the targets of a microbatch where the layer reads them.
func (l *Layer) Feed(x *Exec, b *Batch, saved tensor.Mem, tokens, targets []int32) {
	regions := l.regions(x, saved)
	for i, p := range l.parts {
		p.feed(x, b, regions[i], tokens, targets)
	}
}

// Talks reports whether passes of the layer exchange messages with the replicas
// of its stage.
func (l *Layer) Talks() bool {
	for _, p := range l.parts {
		if p.talks() {
			return true
		}
	}
	return false
}

// Readings lists what Forward leaves for the host, part by part.
func (l *Layer) Readings() []Reading {
	var list []Reading
	for _, p := range l.parts {
		list = append(list, p.readings()...)
	}
	return list
}

// Reading returns where Forward leaves the i-th of Readings, inside saved.
func (l *Layer) Reading(x *Exec, b *Batch, saved tensor.Mem, i int) tensor.Mem {
	at := l.readings[i]
	return l.parts[at.part].reading(x, b, l.regions(x, saved)[at.part], at.index)
}
