package model

import (
	"dynmo/src/cost"
	"dynmo/src/tensor"
)

// Bytes returns the memory that the layer needs, by purpose. Where the planner decides which layers
// recompute (RecomputePlanned), it is the memory without recomputation. Held includes the gradient
// of the layer's output. Of a layer with pieces it is the memory of a replica with all its places
// full (see Fullest).
func (l *Layer) Bytes(x *Exec) cost.Bytes {
	plain := *l
	plain.SetRecompute(false)
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

// Cost returns the layer's name, number of parameters, bytes of output and memory. Seconds are zero.
func (l *Layer) Cost(x *Exec) cost.Layer {
	return cost.Layer{Name: l.Name, NonZeros: l.NonZeros(), Output: l.Leaves().Bytes(x, x.N()), Rows: int64(l.Traits.Rows*x.N()) * l.dtype.Size(), Bytes: l.Bytes(x)}
}

// Outline returns Cost of every layer of the chain, by chain position, as the model is before any
// pruning. It makes no layer and allocates no memory.
func Outline(c Config, x *Exec) []cost.Layer {
	var list []cost.Layer
	for id, d := range c.Chain() {
		list = append(list, outline(c, d, header{Layer: id}, x.Backend.DType()).Cost(x))
	}
	return list
}

// NonZeros returns the number of parameters that are not pruned. Borrowed parameters count, because
// computing with them takes time; copies of other replicas' parameters do not.
func (l *Layer) NonZeros() int64 {
	n := int64(0)
	for _, p := range l.params {
		if !p.Copy {
			n += int64(p.NNZ)
		}
	}
	return n
}
