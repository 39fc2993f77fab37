package model

import "dynmo/src/tensor"

// Recompute says which parts of blocks run their forward a second time, before their backward for
// inputs. Such parts keep only their input and their output: the rest of their saved memory is
// computed a second time (Chen et al. 2016; Korthikanti et al. 2022 recompute attention
// alone). The second pass makes the same calls on the same operands, so that no bit changes.
type Recompute int

const (
	RecomputeNothing   Recompute = iota
	RecomputeAttention           // the attention of every block
	RecomputeBlock               // all parts of every block, except a part that selects tokens
	RecomputePlanned             // the planner decides by layer: all parts or none (see Layer.SetRecompute)
)

// recomputes are the names of what is recomputed, in the settings.
var recomputes = map[string]Recompute{"attention": RecomputeAttention, "block": RecomputeBlock, "plan": RecomputePlanned}

// Saved is the memory of a layer for one microbatch, from forward to the backward for weights.
type Saved struct {
	Kept  tensor.Mem // stays as forward left it
	Again tensor.Mem // of parts that recompute. Other microbatches may use it between forward and backward. Repeat then writes it again.
}

// repeated returns how many parts of a layer recompute: its first ones. A part that selects tokens
// never does, because the host decides which tokens it selects. A block that a kind of dynamism
// turned into one part has no attention that could be recomputed alone.
func (d Description) repeated(r Recompute, parts []Part) (n int) {
	switch d.Kind {
	case Block, Attention, MLP:
	default:
		return 0
	}
	if r == RecomputeAttention {
		if d.Makers[0].Kind == Attention {
			return 1
		}
		return 0
	}
	for r == RecomputeBlock && n < len(parts) && !parts[n].Traits().Selects {
		n++
	}
	return n
}

// SetRecompute sets whether the layer runs its forward a second time before its backward for inputs.
// It has an effect only if Config.Recompute is RecomputePlanned.
func (l *Layer) SetRecompute(again bool) {
	if l.config.Recompute != RecomputePlanned {
		return
	}
	l.recomputed = 0
	if again {
		l.recomputed = l.repeated(RecomputeBlock, l.Parts)
	}
}

// Recomputes reports whether any part of the layer recomputes.
func (l *Layer) Recomputes() bool { return l.recomputed > 0 }

// savedFor returns the field of s that has a part's saved memory.
func (l *Layer) savedFor(part int, s *Saved) *tensor.Mem {
	if part < l.recomputed {
		return &s.Again
	}
	return &s.Kept
}

// cutPart removes the memory of a part from the front of s, and returns the part's output in it. Parts
// are cut in order, so the memory of the next part is then in front. The output of the last part that
// recomputes lies in s.Kept, since later parts need it.
func (l *Layer) cutPart(part int, x *Exec, b *Batch, s *Saved) tensor.Mem {
	m := l.savedFor(part, s)
	out, bytes, _ := l.Parts[part].Memory(x, b.OfPart(part), *m, tensor.Mem{})
	if !m.IsZero() {
		*m = m.Span(bytes, m.Bytes-bytes)
	}
	if part == l.recomputed-1 {
		out = l.cutRecomputed(x, b, &s.Kept)
	}
	return out
}

// cutRecomputed removes the output of the last part that recomputes from the front of kept, and
// returns it.
func (l *Layer) cutRecomputed(x *Exec, b *Batch, kept *tensor.Mem) tensor.Mem {
	c := x.Cut(b, *kept)
	out := c.Boundary(x, l.Parts[l.recomputed-1].Leaves())
	*kept = kept.Span(c.Off, kept.Bytes-c.Off)
	return out
}

// Repeat runs the forward of the parts that recompute a second time, into s.Again. It makes no
// decision, counts nothing and sends nothing: the Works keep the results of the first forward.
func (l *Layer) Repeat(x *Exec, b *Batch, s Saved, inp tensor.Mem) error {
	if l.skips(b) {
		return nil
	}
	x.Repeats = true
	defer func() { x.Repeats = false }()
	list := l.operandsOfParts(x, b, s, tensor.Mem{}, inp, tensor.Mem{}, tensor.Mem{})
	for i := range l.recomputed {
		w := &list[i]
		if Idles(w.part, b) {
			continue
		}
		if err := w.part.Forward(x, w.b, w.saved, w.inp); err != nil {
			return err
		}
	}
	return nil
}
