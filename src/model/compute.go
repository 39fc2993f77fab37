package model

import "dynmo/src/tensor"

// Sizes is the bytes of the memory that one microbatch needs in a layer.
type Sizes struct {
	Kept  int64 // from forward to the backward for weights
	Again int64 // of the parts that recompute: other microbatches may use it between forward and backward
	Held  int64 // from the backward for inputs to the backward for weights
}

// Sizes returns the bytes that one full microbatch needs in this layer.
func (l *Layer) Sizes(x *Exec) Sizes { return l.SizesOf(x, x.N()) }

// SizesOf is Sizes of a microbatch with the given number of tokens.
func (l *Layer) SizesOf(x *Exec, tokens int) (sizes Sizes) {
	full := &Batch{Tokens: tokens, Queries: tokens, Capacity: tokens}
	for i, p := range l.Parts {
		_, s, h := p.Memory(x, full, tensor.Mem{}, tensor.Mem{})
		sizes.Held += h
		if i < l.again {
			sizes.Again += s
		} else {
			sizes.Kept += s
		}
		passed := aligned(p.Leaves().Bytes(x, full.Capacity))
		if i == l.again-1 {
			sizes.Kept += passed
		}
		if i < len(l.Parts)-1 { // the gradient that passes from part to part
			sizes.Held += passed
		}
	}
	return sizes
}

// Leaves returns the width of the layer's output.
func (l *Layer) Leaves() Width { return l.Parts[len(l.Parts)-1].Leaves() }

// MostParts is the most parts that a layer has, those of a Selecting layer included. Making a layer
// of more parts panics.
const MostParts = 3

// operands is the memory that one part works on in a pass.
type operands struct {
	part                              Part
	b                                 *Batch // as the part's passes see it
	saved, held, inp, out, dout, grad tensor.Mem
}

// operands returns, first part first, the memory that each part works on: inp
// enters the first part and dout the last, din leaves the first. In a forward held
// is absent.
func (l *Layer) operands(x *Exec, b *Batch, s Saved, held, inp, dout, din tensor.Mem) (list [MostParts]operands) {
	for i, p := range l.Parts {
		w := &list[i]
		*w = operands{part: p, b: b.OfPart(i), saved: *l.of(i, &s), held: held, inp: inp, dout: dout, grad: din}
		var heldBytes int64
		w.out, _, heldBytes = p.Memory(x, w.b, w.saved, held)
		if i == len(l.Parts)-1 {
			break
		}
		inp = l.next(i, x, b, &s)
		if !held.IsZero() {
			between := p.Leaves()
			din = held.Span(heldBytes, between.Bytes(x, b.Tokens))
			w.dout = din
			heldBytes += aligned(between.Bytes(x, b.Capacity))
			held = held.Span(heldBytes, held.Bytes-heldBytes)
		}
	}
	return list
}

// savedOf returns what a part has of saved memory.
func (l *Layer) savedOf(part int, x *Exec, b *Batch, s Saved) tensor.Mem {
	for i := range part {
		l.next(i, x, b, &s)
	}
	return *l.of(part, &s)
}

// Output returns the place of Forward's result inside s.Kept; absent memory if the layer has no
// output.
func (l *Layer) Output(x *Exec, b *Batch, s Saved) (out tensor.Mem) {
	for i := range l.Parts {
		out = l.next(i, x, b, &s)
	}
	return out
}

// skips reports whether passes are left out: there are no tokens. A layer that talks
// does its part all the same.
func (l *Layer) skips(b *Batch) bool { return b.Tokens == 0 && !l.Traits.Talks }

// Idles reports whether a pass of a part may be left out because the batch has no tokens. Parts that
// exchange messages or select tokens always run.
func Idles(p Part, b *Batch) bool {
	if b.Tokens > 0 {
		return false
	}
	t := p.Traits()
	return !t.Talks && !t.Selects
}

// Forward computes Output from inp, the Output of the layer before. The first layer takes no inp.
// Layers whose Traits.Feeds is true need a call of Feed first. Readings of a batch without tokens
// are zero.
func (l *Layer) Forward(x *Exec, b *Batch, s Saved, inp tensor.Mem) error {
	if l.skips(b) {
		for i := range l.Parts {
			l.unread(x, b, s, i)
		}
		if b.Work == nil {
			return nil
		}
		return b.Work.Skip()
	}
	list := l.operands(x, b, s, tensor.Mem{}, inp, tensor.Mem{}, tensor.Mem{})
	for i := range l.Parts {
		w := &list[i]
		if Idles(w.part, b) {
			l.unread(x, b, s, i)
			continue
		}
		if err := w.part.Forward(x, w.b, w.saved, w.inp); err != nil {
			return err
		}
		if i == l.again-1 {
			x.Stream.Copy(l.passed(x, b, &s.Kept), w.out)
		}
	}
	return nil
}

// unread makes the readings of a part zero.
func (l *Layer) unread(x *Exec, b *Batch, s Saved, part int) {
	for i, r := range l.readings {
		if r.part == part {
			x.Stream.Zero(l.Reading(x, b, s, i))
		}
	}
}

// BackwardInput sets din, the gradient of inp, from dout, the gradient of the output. It leaves in
// held what BackwardWeight needs. If din is absent it only does the latter. The chain's last layer
// takes no dout.
func (l *Layer) BackwardInput(x *Exec, b *Batch, s Saved, held, inp, dout, din tensor.Mem) error {
	if l.skips(b) {
		return nil
	}
	list := l.operands(x, b, s, held, inp, dout, din)
	for i := len(l.Parts) - 1; i >= 0; i-- {
		w := &list[i]
		if Idles(w.part, b) {
			continue
		}
		if err := w.part.BackwardInput(x, w.b, w.saved, w.held, w.inp, w.dout, w.grad); err != nil {
			return err
		}
	}
	return nil
}

// BackwardWeight adds to the gradients of the parameters that are not frozen. All
// memory is as BackwardInput left it.
func (l *Layer) BackwardWeight(x *Exec, b *Batch, s Saved, held, inp, dout tensor.Mem) error {
	if l.skips(b) {
		return nil
	}
	list := l.operands(x, b, s, held, inp, dout, tensor.Mem{})
	for i := len(l.Parts) - 1; i >= 0; i-- {
		w := &list[i]
		if Idles(w.part, b) {
			continue
		}
		if err := w.part.BackwardWeight(x, w.b, w.saved, w.held, w.inp, w.dout); err != nil {
			return err
		}
	}
	return nil
}

// Feed copies into s the tokens and targets that the layer reads. tokens and targets are those of
// the full microbatch, B·T each; of these Feed takes the ones in b.
func (l *Layer) Feed(x *Exec, b *Batch, s Saved, tokens, targets []int32) {
	if l.skips(b) {
		return
	}
	for i, p := range l.Parts {
		p.Feed(x, b.OfPart(i), l.savedOf(i, x, b, s), tokens, targets)
	}
}

// Readings lists the numbers that Forward leaves for the host, part by part.
func (l *Layer) Readings() []Reading {
	var list []Reading
	for _, p := range l.Parts {
		list = append(list, p.Readings()...)
	}
	return list
}

// Reading returns the place of the i-th of Readings inside s.
func (l *Layer) Reading(x *Exec, b *Batch, s Saved, i int) tensor.Mem {
	at := l.readings[i]
	return l.Parts[at.part].Reading(x, b.OfPart(at.part), l.savedOf(at.part, x, b, s), at.index)
}

// Likeliest returns, after a forward of the head, the vocabulary entry with the largest logit of each
// token, I32 (tokens), inside s. It panics for other layers than a whole head of a model that Learns.
func (l *Layer) Likeliest(x *Exec, b *Batch, s Saved) tensor.Mem {
	last := len(l.Parts) - 1
	return l.Parts[last].(teacher).Likeliest(x, b.OfPart(last), l.savedOf(last, x, b, s))
}

// tuned returns the numbers of the layer's parts that are set between steps.
func (l *Layer) tuned() (list []*float64) {
	for _, p := range l.Parts {
		list = append(list, p.Tuned()...)
	}
	return list
}

// Tuning returns the number that a kind of dynamism sets in the layer between steps, such as
// an exit's threshold; false if no part of the layer has any.
func (l *Layer) Tuning() (value float64, ok bool) {
	if list := l.tuned(); len(list) > 0 {
		return *list[0], true
	}
	return 0, false
}

// Tune sets the number that Tuning returns, from the next step on; nothing if the layer has none. The
// number is part of the layer's state.
func (l *Layer) Tune(value float64) {
	for _, at := range l.tuned() {
		*at = value
	}
}
