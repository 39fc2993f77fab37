package model

import (
	"fmt"
	"slices"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// Layer is one item of the chain: its parts, and its parameters in slabs. A slab holds one sort of
// value (weights, gradients, …) of all parameters, so that few calls reduce, update and move a layer.
//
// Every slab has the parameters in one order. First come those that are the same on all replicas,
// then a replica's own, then borrowed ones, then copies of other replicas' parameters. Within each
// of these four groups prunable ones come first, then decayed ones, then plain ones (see Role). The
// slabs of weights and gradients have the same offsets. Those of masters and moments begin at this
// replica's slice if the layer is sliced.
//
// Weights have the backend's type, everything else the wide type. If the two types differ there are
// master weights, which are not rounded.
//
// A layer is sliced if Config.Shards > 0: replicas then divide masters and moments among them.
type Layer struct {
	Description
	ID      int // position in the chain, from 0
	Updates int // optimizer updates so far
	Traits  Traits

	config Config
	params []*Param // in slab order
	Parts  []Part
	device device.Device
	dtype  tensor.DType

	w, master, g, m, v, index, sums tensor.Mem
	shared, own, all, copies        int       // ends, in elements of w, of the four groups of parameters: the last is the length of w
	lo, hi                          int       // this replica has masters and moments of elements [lo, hi) of w; if sliced, of [shared, own) too
	slices                          []sliced  // the ranges that replicas divide among them; nil: the layer is not sliced
	updated, reduced                []segment // elements that are updated, and that are summed over replicas
	mine                            []segment // the elements of updated that this replica updates
	readings                        []partReading
	recomputed                      int       // how many parts, the first ones, recompute (see Recompute)
	state                           []Section // sections that kinds of dynamism registered, by name
}

// segment is elements [lo, hi) of the slabs. Weight decay applies to the first `decayed` elements.
type segment struct{ lo, hi, decayed int }

// partReading names one reading of the layer: the part, and the index of the reading in that part.
type partReading struct{ part, index int }

// makeLayer returns a layer of the chain with its initial weights. Weights
// depend on the seed, the block and the parameter only.
func makeLayer(c Config, id int, d device.Device, t tensor.DType) (*Layer, error) {
	l, err := newLayer(c, c.Chain()[id], header{Layer: id}, d, t)
	if err != nil {
		return nil, err
	}
	for _, p := range l.params {
		if err := l.initialise(p, c.Seed); err != nil {
			l.Free()
			return nil, fmt.Errorf("layer %d (%s): %w", l.ID, l.Name, err)
		}
	}
	return l, nil
}

// newLayer returns a layer of the chain as the header describes it, all values zero unless
// the device recycles memory.
func newLayer(c Config, description Description, h header, d device.Device, t tensor.DType) (*Layer, error) {
	l := outline(c, description, h, t)
	l.device = d
	if err := l.allocate(); err != nil {
		l.Free()
		return nil, fmt.Errorf("layer %d (%s): %w", l.ID, l.Name, err)
	}
	return l, nil
}

// outline returns a layer without memory: its parts and parameters, and how
// large its slabs will be.
func outline(c Config, description Description, h header, t tensor.DType) *Layer {
	l := &Layer{Description: description, ID: h.Layer, Updates: h.Updates, config: c, Parts: description.parts(), dtype: t}
	if len(l.Parts) > MostParts {
		panic("model: a layer of more than MostParts parts")
	}
	for i, p := range l.Parts {
		if p.Traits().Selects && i < len(l.Parts)-1 {
			panic("model: a part selects tokens before the layer's last")
		}
		l.params = append(l.params, p.Params()...)
	}
	l.indexReadings()
	slices.SortStableFunc(l.params, func(a, b *Param) int {
		if d := a.region() - b.region(); d != 0 {
			return d
		}
		return int(a.role) - int(b.role)
	})
	for i, p := range l.params {
		p.NNZ = p.Rows * p.Cols
		if h.Formats != nil {
			p.Format, p.NNZ = h.Formats[i], h.NNZ[i]
		}
		p.Frozen = slices.Contains(h.Frozen, i)
	}
	l.freezePieces()
	if h.Threshold != nil {
		l.Tune(*h.Threshold)
	}
	l.recomputed = description.repeated(c.Recompute, l.Parts)
	l.divide()
	l.share(c)
	return l
}

// Nested returns a layer of parts that run inside another part. Its memory, parameters and gradients
// are those of the layer that contains the other part.
func Nested(parts []Part) *Layer {
	l := &Layer{Parts: parts, Traits: TraitsOf(parts)}
	for _, p := range parts {
		l.params = append(l.params, p.Params()...)
	}
	l.indexReadings()
	return l
}

// indexReadings notes which part each of the readings is of.
func (l *Layer) indexReadings() {
	for i, p := range l.Parts {
		for k := range p.Readings() {
			l.readings = append(l.readings, partReading{i, k})
		}
	}
}

// region returns which of the four groups of parameters a parameter belongs to (see Layer).
func (p *Param) region() int {
	switch {
	case p.Copy:
		return 3
	case p.role == RoleBorrowed:
		return 2
	case p.Own:
		return 1
	}
	return 0
}

// divide sets l.updated, l.reduced, l.Traits and the ends of the groups of parameters. They depend on
// which parameters are frozen.
func (l *Layer) divide() {
	l.updated, l.reduced, l.Traits = nil, nil, TraitsOf(l.Parts)
	ends, first := [4]int{}, 0
	for _, p := range l.params {
		end := first + l.room(p)
		if !p.Frozen && !p.Copy && p.role != RoleBorrowed {
			l.updated = extend(l.updated, first, end, p.role != RolePlain)
		}
		if !p.Frozen && !p.Own && !p.Copy {
			l.reduced = extend(l.reduced, first, end, true)
		}
		for region := p.region(); region < len(ends); region++ {
			ends[region] = end
		}
		first = end
	}
	l.shared, l.own, l.all, l.copies = ends[0], ends[1], ends[2], ends[3]
	l.assign()
}

// extend adds elements [lo, hi) to a list of segments. It lengthens the last segment if that ends at lo
// and its decayed elements stay in front. decays says whether weight decay applies to [lo, hi).
func extend(list []segment, lo, hi int, decays bool) []segment {
	n := len(list) - 1
	if n < 0 || list[n].hi != lo || decays && list[n].decayed < lo-list[n].lo {
		list, n = append(list, segment{lo: lo, hi: lo}), n+1
	}
	list[n].hi = hi
	if decays {
		list[n].decayed = hi - list[n].lo
	}
	return list
}

// allocate makes the slabs for the parameters' present formats, and points
// the parameters into them.
func (l *Layer) allocate() error {
	var index, sums Cutter
	l.cutIndex(&index)
	l.cutSums(&sums)
	wide := l.dtype.Wide()
	for _, s := range []struct {
		slab  *tensor.Mem
		bytes int64
	}{
		{&l.w, int64(l.copies) * l.dtype.Size()}, {&l.master, l.masterBytes()}, {&l.g, int64(l.all) * wide.Size()},
		{&l.m, int64(l.updates()) * wide.Size()}, {&l.v, int64(l.updates()) * wide.Size()}, {&l.index, index.Off}, {&l.sums, sums.Off},
	} {
		m, err := l.device.Alloc(s.bytes)
		if err != nil {
			return err
		}
		*s.slab = m
	}
	l.point()
	index, sums = Cutter{Mem: l.index}, Cutter{Mem: l.sums}
	l.cutIndex(&index)
	l.cutSums(&sums)
	return nil
}

// point sets the spans of memory of all parameters.
func (l *Layer) point() {
	first, wide := 0, l.dtype.Wide()
	for _, p := range l.params {
		end := first + p.Stored()
		p.W = span(l.w, l.dtype, first, end)
		if !p.Copy {
			p.G = span(l.g, wide, first, end)
		}
		if !p.Copy && p.role != RoleBorrowed {
			lo := min(max(first, l.lo), end)
			hi := max(lo, min(end, l.hi))
			if p.Own {
				lo, hi = first, end
			}
			p.From = lo - first
			p.Master, p.M, p.V = l.kept(l.master, lo, hi), l.kept(l.m, lo, hi), l.kept(l.v, lo, hi)
		}
		first += l.room(p)
	}
}

// span returns elements [lo, hi) of a slab; absent if there are none.
func span(slab tensor.Mem, d tensor.DType, lo, hi int) tensor.Mem {
	if slab.IsZero() || lo == hi {
		return tensor.Mem{}
	}
	return slab.Span(int64(lo)*d.Size(), int64(hi-lo)*d.Size())
}

// room returns the elements that a parameter takes in a slab: padding lets each
// begin on a cache line in every slab.
func (l *Layer) room(p *Param) int {
	line := align / int(l.dtype.Size())
	return (p.Stored() + line - 1) / line * line
}

// cutIndex takes the memory of masks and CSR structures from a cutter of the index slab.
func (l *Layer) cutIndex(c *Cutter) {
	for _, p := range l.params {
		p.Mask, p.RowPtr, p.ColIdx = tensor.Mem{}, tensor.Mem{}, tensor.Mem{}
		switch p.Format {
		case Masked:
			p.Mask = c.Take((p.Rows*p.Cols+63)/64, tensor.U64)
		case CSR, BlockCSR:
			p.RowPtr = c.Take(p.Rows+1, tensor.I32)
			p.ColIdx = c.Take(p.NNZ, tensor.I32)
		}
	}
}

// Free frees the layer's memory.
func (l *Layer) Free() {
	for _, s := range []*tensor.Mem{&l.w, &l.master, &l.g, &l.m, &l.v, &l.index, &l.sums} {
		l.device.Free(*s)
		*s = tensor.Mem{}
	}
	for _, s := range l.state {
		device.FreeAside(l.device, s.Mem)
	}
	l.state = nil
}

// Params returns the parameters in slab order, which is fixed for a layer.
func (l *Layer) Params() []*Param { return l.params }

// Param returns the parameter with a Param.Weight, nil if the layer has no such parameter.
func (l *Layer) Param(weight string) *Param {
	for _, p := range l.params {
		if p.Weight == weight {
			return p
		}
	}
	return nil
}

// Own reports whether replicas have different parameters of the layer (Param.Own). Some replicas may
// have none.
func (l *Layer) Own() bool { return l.own > l.shared || l.Traits.Talks }

// Trains reports whether any parameter is not frozen.
func (l *Layer) Trains() bool {
	return slices.ContainsFunc(l.params, func(p *Param) bool { return !p.Frozen })
}

// TrainsByGradients reports whether training any parameter needs a gradient from later layers (see
// Param.Apart).
func (l *Layer) TrainsByGradients() bool {
	return slices.ContainsFunc(l.params, func(p *Param) bool { return !p.Frozen && !p.Apart })
}

// Freeze sets which parameters are frozen from the next step on.
func (l *Layer) Freeze(frozen func(*Param) bool) {
	for _, p := range l.params {
		p.Frozen = frozen(p)
	}
	l.divide()
}

// ZeroGradients sets all gradients to zero, at the beginning of a step. Gradients of frozen
// parameters then stay zero.
func (l *Layer) ZeroGradients(x *Exec) {
	x.Stream.Zero(l.g)
	if !l.sums.IsZero() {
		x.Stream.Zero(l.sums)
	}
}

// MaskGradients sets the gradients of pruned entries of masked matrices to zero.
func (l *Layer) MaskGradients(x *Exec) {
	for _, p := range l.params {
		if p.Format == Masked && !p.Frozen {
			x.Backend.Mask(x.Stream, p.G, p.Mask, p.Stored())
		}
	}
}

// Reduced returns the gradients that are summed over replicas: those of trained parameters that are
// the same on all replicas, with the padding (zero) between them.
func (l *Layer) Reduced() []tensor.Mem {
	var list []tensor.Mem
	for _, s := range l.reduced {
		list = append(list, span(l.g, l.dtype.Wide(), s.lo, s.hi))
	}
	return list
}

// Update applies one step of AdamW to the parameters that are not frozen; in a sliced layer, to this
// replica's slice of them. a.Decay applies to matrices and embeddings, not to norms and biases. The
// layer sets a.Step.
func (l *Layer) Update(x *Exec, a kernel.AdamW) {
	if !l.Trains() {
		return
	}
	l.Updates++
	wide := l.dtype.Wide()
	for _, s := range l.mine {
		a.Step, a.Decayed = l.Updates, s.decayed
		x.Backend.AdamW(x.Stream, span(l.w, l.dtype, s.lo, s.hi), l.kept(l.master, s.lo, s.hi),
			l.kept(l.m, s.lo, s.hi), l.kept(l.v, s.lo, s.hi), span(l.g, wide, s.lo, s.hi), s.hi-s.lo, a)
	}
}
