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
// slab holds one kind of value (weights, gradients, …) of all parameters, so
// that a layer is reduced, updated and moved by few calls. Parameters lie in
// the order of their roles: pruned and decayed, then plain, then borrowed; in all
// slabs at the same elements. Weights have the backend's type, all else the wide
// one; where that is another, there are master weights, which are not rounded.
type Layer struct {
	ID      int
	Name    string
	Updates int // optimizer updates so far

	config Config
	params []*Param // in slab order
	parts  []part
	device device.Device
	dtype  tensor.DType

	w, master, g, m, v, index tensor.Mem
	decayEnd, own             int // elements of w before the first plain, before the first borrowed parameter
	all                       int // elements of w
}

// Header says what a layer's sections hold. With the model's Config it is
// enough to make an empty copy of the layer elsewhere.
type Header struct {
	Layer   int      `json:"layer"`
	Updates int      `json:"updates"`
	Formats []Format `json:"formats"` // of every parameter, in slab order
	NNZ     []int    `json:"nnz"`
}

// Section is a stretch of a layer's state. All sections together, with the
// header, are all there is to a layer between two steps: gradients are left
// over from the last one, and zeroed by the next.
type Section struct {
	Name string
	Mem  tensor.Mem
}

// NewLayer returns a layer of the chain with its initial weights. Weights
// depend on the seed, the block and the parameter only.
func NewLayer(c Config, id int, d device.Device, t tensor.DType) (*Layer, error) {
	l, err := EmptyLayer(c, Header{Layer: id}, d, t)
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

// EmptyLayer returns a layer as the header describes it, all values zero unless
// the device recycles memory: then its sections must be written before they are
// read. Gradients are, by ZeroGradients. A header without formats describes a
// dense layer.
func EmptyLayer(c Config, h Header, d device.Device, t tensor.DType) (*Layer, error) {
	l := outline(c, h, t)
	l.device = d
	if err := l.allocate(); err != nil {
		l.Free()
		return nil, fmt.Errorf("layer %d (%s): %w", l.ID, l.Name, err)
	}
	return l, nil
}

// outline returns a layer without memory: its parts and parameters, and how
// large its slabs will be.
func outline(c Config, h Header, t tensor.DType) *Layer {
	l := &Layer{ID: h.Layer, Name: c.name(h.Layer), Updates: h.Updates, config: c, parts: c.parts(h.Layer), dtype: t}
	for _, p := range l.parts {
		l.params = append(l.params, p.params()...)
	}
	slices.SortStableFunc(l.params, func(a, b *Param) int { return int(a.role) - int(b.role) })
	for i, p := range l.params {
		p.NNZ = p.Rows * p.Cols
		if h.Formats != nil {
			p.Format, p.NNZ = h.Formats[i], h.NNZ[i]
		}
	}
	l.decayEnd, l.own, l.all = l.measure(plain), l.measure(borrowed), l.measure(borrowed+1)
	return l
}

// allocate makes the slabs for the parameters' present formats, and points
// the parameters into them.
func (l *Layer) allocate() error {
	var index cutter
	l.cutIndex(&index)
	narrow, wide := l.dtype.Size(), l.dtype.Wide().Size()
	for _, s := range []struct {
		slab  *tensor.Mem
		bytes int64
	}{
		{&l.w, int64(l.all) * narrow}, {&l.master, l.masterBytes()}, {&l.g, int64(l.all) * wide},
		{&l.m, int64(l.own) * wide}, {&l.v, int64(l.own) * wide}, {&l.index, index.off},
	} {
		m, err := l.device.Alloc(s.bytes)
		if err != nil {
			return err
		}
		*s.slab = m
	}
	first := 0
	for _, p := range l.params {
		p.W, p.G = l.cut(l.w, narrow, first, p), l.cut(l.g, wide, first, p)
		if p.role != borrowed {
			p.Master = l.cut(l.master, wide, first, p)
			p.M, p.V = l.cut(l.m, wide, first, p), l.cut(l.v, wide, first, p)
		}
		first += l.room(p)
	}
	index = cutter{m: l.index}
	l.cutIndex(&index)
	return nil
}

// masterBytes returns the size of the master weights, 0 if there are none.
func (l *Layer) masterBytes() int64 {
	if l.dtype.Wide() == l.dtype {
		return 0
	}
	return int64(l.own) * l.dtype.Wide().Size()
}

// cut returns a parameter's part of a slab, from element first on.
func (l *Layer) cut(slab tensor.Mem, size int64, first int, p *Param) tensor.Mem {
	if slab.IsZero() || p.Stored() == 0 {
		return tensor.Mem{}
	}
	return slab.Span(int64(first)*size, int64(p.Stored())*size)
}

// room returns the elements that a parameter takes in a slab: padding lets each
// begin on a cache line in every slab.
func (l *Layer) room(p *Param) int {
	line := align / int(l.dtype.Size())
	return (p.Stored() + line - 1) / line * line
}

// measure returns the slab elements of the parameters whose role is below end,
// padding included.
func (l *Layer) measure(end role) int {
	elements := 0
	for _, p := range l.params {
		if p.role < end {
			elements += l.room(p)
		}
	}
	return elements
}

// cutIndex places masks and CSR structure in the index slab.
func (l *Layer) cutIndex(c *cutter) {
	for _, p := range l.params {
		p.Mask, p.RowPtr, p.ColIdx = tensor.Mem{}, tensor.Mem{}, tensor.Mem{}
		switch p.Format {
		case Masked:
			p.Mask = c.take((p.Rows*p.Cols+63)/64, tensor.U64)
		case CSR:
			p.RowPtr = c.take(p.Rows+1, tensor.I32)
			p.ColIdx = c.take(p.NNZ, tensor.I32)
		}
	}
}

// Free gives the layer's memory back.
func (l *Layer) Free() {
	for _, s := range []*tensor.Mem{&l.w, &l.master, &l.g, &l.m, &l.v, &l.index} {
		l.device.Free(*s)
		*s = tensor.Mem{}
	}
}

// Params returns the parameters in slab order, which is fixed for a layer.
func (l *Layer) Params() []*Param { return l.params }

// Header describes the layer's present formats.
func (l *Layer) Header() Header {
	h := Header{Layer: l.ID, Updates: l.Updates}
	for _, p := range l.params {
		h.Formats = append(h.Formats, p.Format)
		h.NNZ = append(h.NNZ, p.NNZ)
	}
	return h
}

// Sections returns the layer's state between two steps: weights, moments, and
// sparse structure.
func (l *Layer) Sections() []Section {
	all := []Section{{"weights", l.w}, {"master", l.master}, {"moment1", l.m}, {"moment2", l.v}, {"index", l.index}}
	return slices.DeleteFunc(all, func(s Section) bool { return s.Mem.IsZero() })
}

// Bytes returns what the layer needs, by kind. The gradient of its output is
// held between the two backwards of a microbatch.
func (l *Layer) Bytes(x *Exec) cost.Bytes {
	saved, held := l.Sizes(x)
	return cost.Bytes{
		Parameters: int64(l.all)*l.dtype.Size() + l.index.Bytes, Gradients: int64(l.all) * l.dtype.Wide().Size(),
		Optimizer: 2*int64(l.own)*l.dtype.Wide().Size() + l.masterBytes(), Activations: saved,
		Held: held + x.Boundary(l.config, l.ID+1),
	}
}

// Outline returns the names, parameters, outputs and bytes of all layers of a dense
// chain, without making any of them. Seconds are zero.
func Outline(c Config, x *Exec) []cost.Layer {
	var list []cost.Layer
	for id, name := range c.Names() {
		l := outline(c, Header{Layer: id}, x.Backend.DType())
		list = append(list, cost.Layer{Name: name, NonZeros: l.NonZeros(), Output: x.Boundary(c, id+1), Bytes: l.Bytes(x)})
	}
	return list
}

// NonZeros returns the parameters that are left, borrowed ones included: they
// cost time where they are used.
func (l *Layer) NonZeros() int64 {
	n := int64(0)
	for _, p := range l.params {
		n += int64(p.NNZ)
	}
	return n
}

// ZeroGradients begins a step.
func (l *Layer) ZeroGradients(x *Exec) { x.Stream.Zero(l.g) }

// MaskGradients removes the gradients of pruned entries of masked matrices.
func (l *Layer) MaskGradients(x *Exec) {
	for _, p := range l.params {
		if p.Format == Masked {
			x.Backend.Mask(x.Stream, p.G, p.Mask, p.Stored())
		}
	}
}

// Gradients returns all gradients of the layer, padding (zero) included.
func (l *Layer) Gradients() tensor.Mem { return l.g }

// SquaredNorm stores in out, one F64, the sum of squares of the gradients that
// this layer owns.
func (l *Layer) SquaredNorm(x *Exec, out tensor.Mem) {
	x.Backend.SumSquares(x.Stream, out, l.g.Span(0, int64(l.own)*l.dtype.Wide().Size()), l.own)
}

// Update applies one step of AdamW. a.Decay is applied to matrices and
// embeddings, not to norms and biases; a.Step is set by the layer.
func (l *Layer) Update(x *Exec, a kernel.AdamW) {
	l.Updates++
	a.Step, a.Decayed = l.Updates, l.decayEnd
	if l.own > 0 {
		w := l.w.Span(0, int64(l.own)*l.dtype.Size())
		g := l.g.Span(0, int64(l.own)*l.dtype.Wide().Size())
		x.Backend.AdamW(x.Stream, w, l.master, l.m, l.v, g, l.own, a)
	}
}

// Tied returns the layer's end of a tied embedding: the embedding's matrix or
// the head's borrowed copy of it (of a slice of it), nil in other layers and if
// nothing is tied.
func (l *Layer) Tied() *Param {
	if !l.config.Tied {
		return nil
	}
	for _, p := range l.params {
		if p.Name == tokenTable {
			return p
		}
	}
	return nil
}
