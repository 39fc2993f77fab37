package model

import (
	"fmt"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// Layer is one item of the chain: its parts, and its parameters in slabs. A
// slab holds one sort of value (weights, gradients, …) of all parameters, so
// that a layer is reduced, updated and moved by few calls. Parameters lie in
// this order: those that all replicas share, a replica's own, borrowed ones, copies;
// within each pruned, decayed and plain ones; in all slabs at the same elements.
// Weights have the backend's type, all else the wide one; where that is another,
// there are master weights, which are not rounded.
type Layer struct {
	Description
	ID      int
	Updates int // optimizer updates so far
	Traits  Traits

	config Config
	params []*Param // in slab order
	Parts  []Part
	device device.Device
	dtype  tensor.DType

	w, master, g, m, v, index, sums tensor.Mem
	shared, own, all, copies        int       // elements of w before the first own, borrowed and copied parameter, in all
	lo, hi                          int       // elements of w whose masters and moments are here; of a sliced layer this replica's own, too
	slices                          []sliced  // what replicas share out; nil: each has all masters and moments
	updated, reduced                []segment // of the slabs
	mine                            []segment // what this replica updates
	readings                        []partReading
	again                           int       // how many parts, the first ones, run forward again (see Recompute)
	state                           []Section // what kinds of dynamism registered, by name
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
		panic("model: a layer of more than mostParts parts")
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
	l.again = description.repeated(c.Recompute, l.Parts)
	l.divide()
	l.share(c)
	return l
}

// Nested returns the layer that is parts within another part. Its memory, parameters and
// gradients are those of the layer around it.
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

// region returns which part of the slabs a parameter lies in.
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

// divide finds what of the slabs is updated, and what is summed over replicas, and the
// traits, which depend on that too.
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

// extend adds elements [lo, hi) to a list of segments: to the last of them if it
// ends there and, since the decayed come first, if what decays goes on.
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

// point points the parameters into the slabs.
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

// cutIndex places masks and CSR structure in the index slab.
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

// Free gives the layer's memory back.
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

// Param returns the parameter of a weight (see Param.Weight), nil if the layer has
// none of it.
func (l *Layer) Param(weight string) *Param {
	for _, p := range l.params {
		if p.Weight == weight {
			return p
		}
	}
	return nil
}

// Bytes returns what the layer needs, by kind, if it computes nothing twice that is planned. The
// gradient of its output is held between the two backwards of a microbatch.
func (l *Layer) Bytes(x *Exec) cost.Bytes {
	plain := *l
	plain.RecomputeAll(false)
	sizes, full := plain.Sizes(x), l.fullest()
	var sums Cutter
	full.cutSums(&sums)
	bytes := cost.Bytes{
		Parameters: int64(full.copies)*l.dtype.Size() + l.index.Bytes, Gradients: int64(full.all)*l.dtype.Wide().Size() + sums.Off,
		Optimizer: 2*int64(full.updates())*l.dtype.Wide().Size() + full.masterBytes(), Activations: sizes.Kept + l.WorkBytes(x),
		Recomputed: sizes.Again,
		Own:        int64(full.own-full.shared)*l.dtype.Wide().Size() + sums.Off,
		Held:       sizes.Held + l.Leaves().Bytes(x, x.N()),
	}
	if l.device != nil && l.device.Space() == tensor.Host {
		for _, s := range l.state {
			bytes.Parameters += s.Mem.Bytes
		}
	}
	return bytes
}

// Cost returns the layer's name, parameters, output and bytes. Seconds are zero.
func (l *Layer) Cost(x *Exec) cost.Layer {
	return cost.Layer{Name: l.Name, NonZeros: l.NonZeros(), Output: l.Leaves().Bytes(x, x.N()), Rows: int64(l.Traits.Rows*x.N()) * l.dtype.Size(), Bytes: l.Bytes(x)}
}

// Outline returns the costs of all layers of a dense chain without their seconds,
// and without making any of them.
func Outline(c Config, x *Exec) []cost.Layer {
	var list []cost.Layer
	for id, d := range c.Chain() {
		list = append(list, outline(c, d, header{Layer: id}, x.Backend.DType()).Cost(x))
	}
	return list
}

// NonZeros returns the parameters that are left, borrowed ones included: they
// cost time where they are used.
func (l *Layer) NonZeros() int64 {
	n := int64(0)
	for _, p := range l.params {
		if !p.Copy {
			n += int64(p.NNZ)
		}
	}
	return n
}

// Own reports whether each replica has parameters of its own. One of them may have none.
func (l *Layer) Own() bool { return l.own > l.shared || l.Traits.Talks }

// Trains reports whether any parameter is not frozen.
func (l *Layer) Trains() bool {
	return slices.ContainsFunc(l.params, func(p *Param) bool { return !p.Frozen })
}

// TrainsByGradients reports whether any parameter is trained by what a backward for inputs finds.
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

// ZeroGradients begins a step. Gradients of what is frozen stay zero.
func (l *Layer) ZeroGradients(x *Exec) {
	x.Stream.Zero(l.g)
	if !l.sums.IsZero() {
		x.Stream.Zero(l.sums)
	}
}

// MaskGradients removes the gradients of pruned entries of masked matrices.
func (l *Layer) MaskGradients(x *Exec) {
	for _, p := range l.params {
		if p.Format == Masked && !p.Frozen {
			x.Backend.Mask(x.Stream, p.G, p.Mask, p.Stored())
		}
	}
}

// Reduced returns the gradients that are summed over replicas, padding (zero)
// included: those of parameters that are trained and that all replicas share.
func (l *Layer) Reduced() []tensor.Mem {
	var list []tensor.Mem
	for _, s := range l.reduced {
		list = append(list, span(l.g, l.dtype.Wide(), s.lo, s.hi))
	}
	return list
}

// Update applies one step of AdamW to what is not frozen, of a sliced layer to this replica's
// slice. a.Decay is applied to matrices and embeddings, not to norms and biases; a.Step is set
// by the layer.
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
