package model

// Family is an architecture: it says what the chain of a Config is, and what its
// weights are called elsewhere. A new family is a new file and an entry in
// families.
type Family interface {
	// Chain describes the layers, first to last.
	Chain(c Config) []Description
	// Weights lists the tensors of the whole model in the order of llm.c's file.
	Weights(c Config) []Weight
}

var families = map[string]Family{"": gpt2{}, "gpt2": gpt2{}, "llama": llama{}}

// Register adds a family, before any model of it is made.
func Register(name string, f Family) { families[name] = f }

func (c Config) family() Family {
	f, ok := families[c.Family]
	if !ok {
		panic("model: unknown family " + c.Family)
	}
	return f
}

// Weights lists the tensors of the model in the order of llm.c's file.
func (c Config) Weights() []Weight {
	list := c.family().Weights(c)
	for _, e := range c.Kinds.list() {
		list = e.Weights(c, list)
	}
	return list
}

// Kind is what a layer is.
type Kind string

// Kinds of layers: a block is attention and MLP in one.
const (
	Embedding Kind = "embedding"
	Attention Kind = "attention"
	MLP       Kind = "mlp"
	Block     Kind = "block"
	Head      Kind = "head"
	Exit      Kind = "exit"
)

// Description says what a layer of the chain is.
type Description struct {
	Name   string
	Kind   Kind
	Block  int     // -1 outside the blocks
	Form   string  // sets the layer apart from others of its Kind that compute something else; empty for most
	Makers []Maker // that the layer's parts are made of, first to last
}

// Alike reports whether two layers compute the same on other weights: blocks, or layers
// that these are cut into, of one form, exits, or what has the same name.
func (d Description) Alike(other Description) bool {
	if d.Kind != other.Kind {
		return false
	}
	if d.Block < 0 && d.Kind != Exit {
		return d.Name == other.Name
	}
	return d.Form == other.Form
}

// parts returns new parts, first to last.
func (d Description) parts() []Part { return MakeParts(d.Makers) }

// MakeParts returns a new part of each maker.
func MakeParts(makers []Maker) []Part {
	var list []Part
	for _, p := range makers {
		list = append(list, p.New())
	}
	return list
}

// Params returns new parameters of the layer, without memory.
func (d Description) Params() []*Param {
	var list []*Param
	for _, p := range d.parts() {
		list = append(list, p.Params()...)
	}
	return list
}

// Leaves returns what the layer passes on.
func (d Description) Leaves() Width {
	parts := d.parts()
	return parts[len(parts)-1].Leaves()
}

// Traits says what the pipeline must know of the layer.
func (d Description) Traits() Traits { return TraitsOf(d.parts()) }

// Weight is one tensor of a model under its names here and elsewhere.
type Weight struct {
	Name        string  // Param.Weight
	HuggingFace string  // without a prefix that all names share
	Shape       []int64 // (out, in), or (out) of a norm or bias
	Transposed  bool    // Hugging Face stores it as (in, out)
	Outside     bool    // Hugging Face's name never has the prefix
	Split       []Rows  // in place of HuggingFace, where it is several tensors there
}

// Rows is a tensor elsewhere that is rows of one here, behind those of the tensor before.
type Rows struct {
	HuggingFace string // without a prefix that all names share
	Rows        int64
}

// Bytes returns the size of the tensor in float32.
func (w Weight) Bytes() int64 { return w.Shape[0] * w.Row() }

// Row returns the size of one of its rows in float32: a value of a vector.
func (w Weight) Row() int64 {
	n := int64(4)
	for _, s := range w.Shape[1:] {
		n *= s
	}
	return n
}
