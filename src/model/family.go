package model

import (
	"cmp"
	"fmt"
	"math"

	"dynmo/src/config"
)

// Family is an architecture: the chain of a Config, and the names of its weights in files of other
// programs. Each family is a folder under src/family.
type Family struct {
	Name    string                       // in the settings
	Shape   func(config.Config, *Config) // sets what the family's own settings say; nil: nothing
	Chain   func(c Config) []Description // the layers, first to last
	Weights func(c Config) []Weight      // the tensors of the whole model in a fixed order
	Sampled bool                         // its parts can continue a Text, as package sample does
}

// families are all that are registered. The first is that of a Config that names none.
var families []Family

// RegisterFamily adds a family. Call RegisterFamily before any model is made, in an init function.
func RegisterFamily(f Family) { families = append(families, f) }

func familyOf(name string) Family {
	for i, f := range families {
		if f.Name == name || i == 0 && name == "" {
			return f
		}
	}
	panic(fmt.Sprintf("model: no family %q is registered: package kind registers families, tests import it", name))
}

// FamilyName returns the name of the model's family.
func (c Config) FamilyName() string { return cmp.Or(c.Family, families[0].Name) }

// SampledFamilies returns the families that package sample can generate text with.
func SampledFamilies() (names []string) {
	for _, f := range families {
		if f.Sampled {
			names = append(names, f.Name)
		}
	}
	return names
}

// Weights lists the tensors of the model in a fixed order.
func (c Config) Weights() []Weight {
	list := familyOf(c.Family).Weights(c)
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
	Form   string  // differs between layers of one Kind that compute different things; empty for most
	Makers []Maker // that the layer's parts are made of, first to last
}

// Alike reports whether two layers compute the same function, with different weights. Both have
// the same Kind. Inside blocks, and for exits, both also have the same Form. Other layers must have
// the same Name.
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

// Leaves returns the width of the layer's output.
func (d Description) Leaves() Width {
	parts := d.parts()
	return parts[len(parts)-1].Leaves()
}

// Traits returns the facts that the pipeline must know about the layer.
func (d Description) Traits() Traits { return TraitsOf(d.parts()) }

// Weight is one tensor of a model under its names here and elsewhere.
type Weight struct {
	Name        string  // Param.Weight
	HuggingFace string  // name in Hugging Face's files, without the prefix that all names have
	Shape       []int64 // (out, in), or (out) of a norm or bias
	Transposed  bool    // Hugging Face stores it as (in, out)
	Outside     bool    // Hugging Face's name does not have that prefix
	Split       []Rows  // replaces HuggingFace where the tensor is several tensors there, one below the other
}

// Rows is a tensor of Hugging Face's file that is some rows of a Weight. The rows follow those of
// the entry before in Weight.Split.
type Rows struct {
	HuggingFace string // see Weight.HuggingFace
	Rows        int64
}

// Bytes returns the bytes of the tensor in float32.
func (w Weight) Bytes() int64 { return w.Shape[0] * w.Row() }

// Row returns the bytes of one row in float32. A row of a vector is one value.
func (w Weight) Row() int64 {
	n := int64(4)
	for _, s := range w.Shape[1:] {
		n *= s
	}
	return n
}

// Decoder returns the chain of a decoder before kinds of dynamism extend it: embedding,
// blocks of pre-norm attention and MLP with residuals, and a head of final norm, vocabulary
// projection and cross-entropy. The head can be a layer for each of several slices of the
// vocabulary. Names are "embedding", "block.0" or "block.0.attention" and "block.0.mlp",
// "head" or "head.0", "head.1", ….
func Decoder(c Config) []Description {
	layer := func(name string, kind Kind, block int, makers ...Maker) Description {
		return Description{Name: name, Kind: kind, Block: block, Makers: makers}
	}
	chain := []Description{layer("embedding", Embedding, -1, Maker{New: func() Part { return newEmbedding(c) }})}
	for b := range c.Blocks {
		chain = append(chain, layer(fmt.Sprintf("block.%d", b), Block, b,
			Maker{Name: "attention", Kind: Attention, New: func() Part { return NewAttention(c, b, nil) }},
			Maker{Name: "mlp", Kind: MLP, New: func() Part { return newFeedForward(c, b) }}))
	}
	for k := range c.Slices() {
		name := "head"
		if c.Slices() > 1 {
			name = fmt.Sprintf("head.%d", k)
		}
		chain = append(chain, layer(name, Head, -1, Maker{New: func() Part { return newHead(c, k) }}))
	}
	return chain
}

// InitDeviation is the standard deviation of initial weights (Radford et al. 2019; Touvron et al.
// 2023 have the same).
const InitDeviation = 0.02

// Deviation returns the standard deviation of a block's initial weights.
func (c Config) Deviation(block int) float64 {
	if c.DepthScaled {
		return InitDeviation / math.Sqrt(float64(block+1))
	}
	return InitDeviation
}

// Residual returns the deviation of a matrix that writes to the residual
// stream: smaller by the root of the number of such matrices (Radford et al.
// 2019).
func (c Config) Residual(deviation float64) float64 {
	return deviation / math.Sqrt(float64(2*c.Blocks))
}
