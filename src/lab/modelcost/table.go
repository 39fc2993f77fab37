package modelcost

import (
	"dynmo/src/cost"
	"dynmo/src/lab/roofline"
)

// Bytes of a parameter. Weights are in bfloat16; gradients, and Adam's master weights and two moments, are
// in float32.
const (
	weightBytes    = 2
	gradientBytes  = 4
	optimizerBytes = 12
)

// backwardProducts is the number of attention's products in backward for each one in forward: five for
// two, since scores are computed again. Source: Dao 2023, "FlashAttention-2", section 3.
const backwardProducts = 2.5

// Estimate returns the estimated costs of layers on a GPU. Messages between ranks take no time in it, and
// nothing is recomputed except scores.
//
// Bytes are those of one rank, without sharing of the optimizer's state between replicas. Activations are
// the inputs of all operations that backward needs, two bytes each, and the logits in float32: the count
// of Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4,
// without dropout, without scores, and with sequence parallelism (equation 4) on several ranks.
func Estimate(layers []Layer, g roofline.GPU) cost.Table {
	t := cost.Table{Clock: cost.Estimated, Device: g.Name}
	for _, l := range layers {
		x := cost.Layer{Name: l.Name, NonZeros: l.Parameters, Output: int64(elementBytes * l.output)}
		for _, k := range l.kernels {
			x.Forward += k.forward(g)
			x.BackwardInput += k.backward(g)
			x.BackwardWeight += k.weight(g)
			x.Bytes.Activations += int64(k.kept)
		}
		if l.Name == embedding { // its input has no gradient
			x.BackwardInput, x.BackwardWeight = 0, x.BackwardInput
		}
		all := l.Parameters + l.copied
		x.Bytes.Parameters, x.Bytes.Gradients, x.Bytes.Optimizer = weightBytes*all, gradientBytes*all, optimizerBytes*l.Parameters
		x.Bytes.Held = x.Bytes.Activations
		t.Layers = append(t.Layers, x)
	}
	return t
}

func (k kernel) forward(g roofline.GPU) float64 {
	bytes := elementBytes * (k.weights + k.moved)
	if k.exponentials > 0 {
		return g.Attending(k.multiplyAdds, k.exponentials, bytes)
	}
	if k.multiplyAdds == 0 {
		return g.Moving(bytes)
	}
	return g.Product(k.multiplyAdds, bytes)
}

func (k kernel) backward(g roofline.GPU) float64 {
	if k.exponentials > 0 {
		return g.Attending(backwardProducts*k.multiplyAdds, k.exponentials, elementBytes*2*k.moved)
	}
	if k.multiplyAdds == 0 {
		return g.Moving(elementBytes * 1.5 * k.moved) // the gradient comes beside the input, and goes
	}
	return k.forward(g)
}

// weight returns the seconds of the gradient of the matrices, which is read and written.
func (k kernel) weight(g roofline.GPU) float64 {
	if k.weights == 0 {
		return 0
	}
	return g.Product(k.multiplyAdds, elementBytes*k.moved+2*gradientBytes*k.weights)
}
