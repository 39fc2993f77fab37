package model

import "dynmo/src/tensor"

// Sizes is the bytes of the memory that one microbatch needs in a layer.
type Sizes struct {
	Kept  int64 // needed from forward to the backward for weights
	Again int64 // needed during forward and from Repeat to the backward for weights: saved by parts that recompute
	Held  int64 // needed from the backward for inputs to the backward for weights
}

// Sizes returns the bytes that one full microbatch needs in this layer.
func (l *Layer) Sizes(x *Exec) Sizes { return l.SizesOf(x, x.N()) }

// SizesOf returns the bytes that a microbatch with the given number of tokens needs in this layer.
func (l *Layer) SizesOf(x *Exec, tokens int) (sizes Sizes) {
	full := &Batch{Tokens: tokens, Queries: tokens, Capacity: tokens}
	for i, p := range l.Parts {
		_, s, h := p.Memory(x, full, tensor.Mem{}, tensor.Mem{})
		sizes.Held += h
		if i < l.recomputed {
			sizes.Again += s
		} else {
			sizes.Kept += s
		}
		output := aligned(p.Leaves().Bytes(x, full.Capacity))
		if i == l.recomputed-1 { // later parts need its output
			sizes.Kept += output
		}
		if i < len(l.Parts)-1 { // the gradient of its output
			sizes.Held += output
		}
	}
	return sizes
}

// Leaves returns the width of the layer's output.
func (l *Layer) Leaves() Width { return l.Parts[len(l.Parts)-1].Leaves() }

// MostParts is the most parts that a layer has, those of a Selecting layer included. Making a layer
// of more parts panics.
const MostParts = 3

// operands is what one part works on in a pass: its arguments, as Part has them.
type operands struct {
	part                             Part
	b                                *Batch // as the part's passes see it
	saved, held, inp, out, dout, din tensor.Mem
}

// operandsOfParts returns the operands of each part, in order. inp, dout and din are the layer's: inp
// and din belong to the first part, dout to the last part. A part's output is the next part's inp. Its
// gradient, which lies in held, is the dout of the part and the din of the next part. In a forward
// pass held, dout and din are absent.
func (l *Layer) operandsOfParts(x *Exec, b *Batch, s Saved, held, inp, dout, din tensor.Mem) (list [MostParts]operands) {
	for i, p := range l.Parts {
		w := &list[i]
		*w = operands{part: p, b: b.OfPart(i), saved: *l.savedFor(i, &s), held: held, inp: inp, dout: dout, din: din}
		var heldBytes int64
		w.out, _, heldBytes = p.Memory(x, w.b, w.saved, held)
		if i == len(l.Parts)-1 {
			break
		}
		inp = l.cutPart(i, x, b, &s)
		if !held.IsZero() {
			output := p.Leaves()
			din = held.Span(heldBytes, output.Bytes(x, b.Tokens))
			w.dout = din
			heldBytes += aligned(output.Bytes(x, b.Capacity))
			held = held.Span(heldBytes, held.Bytes-heldBytes)
		}
	}
	return list
}

// savedOf returns the saved memory from a part on: it begins with the part's own.
func (l *Layer) savedOf(part int, x *Exec, b *Batch, s Saved) tensor.Mem {
	for i := range part {
		l.cutPart(i, x, b, &s) // changes s
	}
	return *l.savedFor(part, &s)
}

// Output returns the place of Forward's result inside s.Kept; absent memory if the layer has no
// output.
func (l *Layer) Output(x *Exec, b *Batch, s Saved) (out tensor.Mem) {
	for i := range l.Parts {
		out = l.cutPart(i, x, b, &s)
	}
	return out
}

// skips reports whether the layer leaves out its passes because the batch has no tokens. A layer that
// exchanges messages (Traits.Talks) runs them even then: other replicas wait for its messages.
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
			l.zeroReadings(x, b, s, i)
		}
		if b.Work == nil {
			return nil
		}
		return b.Work.Skip()
	}
	list := l.operandsOfParts(x, b, s, tensor.Mem{}, inp, tensor.Mem{}, tensor.Mem{})
	for i := range l.Parts {
		w := &list[i]
		if Idles(w.part, b) {
			l.zeroReadings(x, b, s, i)
			continue
		}
		if err := w.part.Forward(x, w.b, w.saved, w.inp); err != nil {
			return err
		}
		if i == l.recomputed-1 {
			x.Stream.Copy(l.cutRecomputed(x, b, &s.Kept), w.out)
		}
	}
	return nil
}

// zeroReadings sets the readings of a part to zero.
func (l *Layer) zeroReadings(x *Exec, b *Batch, s Saved, part int) {
	for i, r := range l.readings {
		if r.part == part {
			x.Stream.Zero(l.Reading(x, b, s, i))
		}
	}
}

// BackwardInput sets din, the gradient of inp, from dout, the gradient of the output. It leaves in
// held what BackwardWeight needs. If din is absent it computes only what BackwardWeight needs. The
// chain's last layer takes no dout.
func (l *Layer) BackwardInput(x *Exec, b *Batch, s Saved, held, inp, dout, din tensor.Mem) error {
	if l.skips(b) {
		return nil
	}
	list := l.operandsOfParts(x, b, s, held, inp, dout, din)
	for i := len(l.Parts) - 1; i >= 0; i-- {
		w := &list[i]
		if Idles(w.part, b) {
			continue
		}
		if err := w.part.BackwardInput(x, w.b, w.saved, w.held, w.inp, w.dout, w.din); err != nil {
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
	list := l.operandsOfParts(x, b, s, held, inp, dout, tensor.Mem{})
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
// the full microbatch, B·T each. Feed copies only those of the tokens in b.
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
	r := l.readings[i]
	return l.Parts[r.part].Reading(x, b.OfPart(r.part), l.savedOf(r.part, x, b, s), r.index)
}

// Likeliest returns, after a forward of the head, the vocabulary entry with the largest logit of each
// token, I32 (tokens), inside s. It panics for other layers than a whole head of a model that Learns.
func (l *Layer) Likeliest(x *Exec, b *Batch, s Saved) tensor.Mem {
	last := len(l.Parts) - 1
	return l.Parts[last].(teacher).Likeliest(x, b.OfPart(last), l.savedOf(last, x, b, s))
}

// tunedNumbers returns pointers to the numbers of the layer's parts that Tune sets.
func (l *Layer) tunedNumbers() (list []*float64) {
	for _, p := range l.Parts {
		list = append(list, p.Tuned()...)
	}
	return list
}

// Tuning returns the number that a kind of dynamism sets in the layer between steps, such as
// an exit's threshold. ok is false if no part of the layer has such a number.
func (l *Layer) Tuning() (value float64, ok bool) {
	if list := l.tunedNumbers(); len(list) > 0 {
		return *list[0], true
	}
	return 0, false
}

// Tune sets the number that Tuning returns, from the next step on. It does nothing if the layer has no
// such number. The number is part of the layer's state.
func (l *Layer) Tune(value float64) {
	for _, number := range l.tunedNumbers() {
		*number = value
	}
}
