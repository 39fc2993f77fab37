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
	Again tensor.Mem // of parts that recompute: lent to other microbatches between forward and backward, then written again by Repeat
}

// repeated returns how many parts of a layer run forward again: its first ones. Parts that
// select tokens decide on the host which tokens go on, and are left out. A block that a kind
// of dynamism made one part has no attention that could be recomputed alone.
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
	l.again = 0
	if again {
		l.again = l.repeated(RecomputeBlock, l.Parts)
	}
}

// Recomputes reports whether parts of the layer run forward again.
func (l *Layer) Recomputes() bool { return l.again > 0 }

// of returns the memory that a part and those behind it take theirs from.
func (l *Layer) of(part int, s *Saved) *tensor.Mem {
	if part < l.again {
		return &s.Again
	}
	return &s.Kept
}

// next returns what leaves a part, and cuts the part's memory off s.
func (l *Layer) next(part int, x *Exec, b *Batch, s *Saved) tensor.Mem {
	m := l.of(part, s)
	out, bytes, _ := l.Parts[part].Memory(x, b.OfPart(part), *m, tensor.Mem{})
	if !m.IsZero() {
		*m = m.Span(bytes, m.Bytes-bytes)
	}
	if part == l.again-1 {
		out = l.passed(x, b, &s.Kept)
	}
	return out
}

// passed cuts what leaves the last part that runs forward again off kept memory.
func (l *Layer) passed(x *Exec, b *Batch, kept *tensor.Mem) tensor.Mem {
	c := x.Cut(b, *kept)
	out := c.Boundary(x, l.Parts[l.again-1].Leaves())
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
	list := l.operands(x, b, s, tensor.Mem{}, inp, tensor.Mem{}, tensor.Mem{})
	for i := range l.again {
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
