package nodebench

import (
	"errors"
	"fmt"
	"slices"

	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/random"
)

// everyRow samples 16 rows of axis N.
var everyRow = []sampling{{axis: 'N', runs: 16}}

// indices returns n random integers below a limit.
func indices(n, limit int) []int32 {
	r := random.Keyed(uint64(n), uint64(limit))
	list := make([]int32, n)
	for i := range list {
		list[i] = r.Int32N(int32(limit))
	}
	return list
}

// bytesOf returns the bytes of an element of the measured type, and of a wide one.
func (g *gpu) bytesOf() (element, wide float64) {
	d := g.BF16.DType()
	return float64(d.Size()), float64(d.Wide().Size())
}

const (
	// sparseBuckets are the buckets of sparse attention. A query shares its bucket with a quarter of
	// the keys before it.
	sparseBuckets = 4
	// bucketsReach is how many times as fast as dense attention sparse attention should be. Four
	// would be its share of the pairs.
	bucketsReach = 2
)

// attention measures causal attention of sequences of 2048 tokens, for several head sizes with 1024
// channels in all. Operations are those of the products on and below the diagonal: two forward,
// five backward, each 2·t²/2·size for a head. Beside it, in the same rounds, it measures sparse
// attention with a quarter of these operations, on sorted buckets:
//
//	sparse_attention_to_dense = seconds of dense forward and backward / those of sparse ones
func (g *gpu) attention() {
	b, t, c := g.size(8, 1), g.size(2048, 40), g.size(1024, 128)
	ends := make([]int32, b+1)
	for i := range ends {
		ends[i] = int32(i * t)
	}
	for _, size := range []int{32, 64, 128} {
		order, starts := buckets(b*c/size, t, sparseBuckets)
		dense := operations{
			sizes: map[byte]int{'B': b, 'T': t, '2': 2, '3': 3, 'H': c / size, 'S': size, 'X': sparseBuckets + 1},
			axes: map[string]string{
				"out": "BTHS", "dout": "BTHS", "qkv": "BT3HS", "dqkv": "BT3HS", "lse": "BHT", "offsets": "B+",
				"h.Order": "BH2T", "h.Starts": "BH2X",
			},
			lists: map[string][]int32{"offsets": ends, "h.Order": order, "h.Starts": starts},
		}
		sparse := dense
		sparse.numbers.Buckets = sparseBuckets
		dense.timed = passes("attention", size, kernel.AttentionForward, kernel.AttentionBackward)
		sparse.timed = passes("sparse_attention", size, kernel.SparseAttentionForward, kernel.SparseAttentionBackward)
		s, wrong := g.inTurn(dense, sparse)
		if g.err != nil {
			return
		}
		ratio := spans{s.sum(0, 1), s.sum(2, 3)}.ratio(0, 1, 1)
		g.estimate(fmt.Sprintf("sparse_attention_hs%d_to_dense", size), ratio, "ratio", bucketsReach, wrong)
		g.free()
	}
}

// passes returns the forward and the backward of an attention with heads of a size.
func passes(name string, size int, forward, backward kernel.Op) []timed {
	heads := []sampling{{axis: 'B', runs: 2}, {axis: 'H', runs: 1}}
	return []timed{
		{op: forward, name: fmt.Sprintf("%s_forward_hs%d", name, size), samples: heads, most: 1, rows: true},
		{op: backward, name: fmt.Sprintf("%s_backward_hs%d", name, size), samples: heads, most: 1, rows: true},
	}
}

// buckets returns the sorted tokens of kernel.Buckets for heads of t tokens. A token is in a random
// bucket, its query and its key in the same one.
func buckets(heads, t, count int) (order, starts []int32) {
	for bucket := range slices.Chunk(indices(heads*t, count), t) {
		var sorted []int32
		ends := []int32{0}
		for b := range count {
			for i := range bucket {
				if int(bucket[i]) == b {
					sorted = append(sorted, int32(i))
				}
			}
			ends = append(ends, int32(len(sorted)))
		}
		order, starts = append(append(order, sorted...), sorted...), append(append(starts, ends...), ends...)
	}
	return order, starts
}

func (g *gpu) layernorm() { g.operate(g.norm("layernorm", true)) }

// norm measures a norm and both halves of its backward, LayerNorm if centred, else RMSNorm:
//
//	forward          inp, out              mean, rstd
//	backward_input   dinp twice, dout, inp
//	backward_weight  dout, inp
func (g *gpu) norm(name string, centred bool) operations {
	n, c := g.size(1<<16, 48), g.size(1024, 64)
	axes := map[string]string{
		"inp": "NC", "out": "NC", "dout": "NC", "dinp": "NC", "rstd": "N", "weight": "C", "dweight": "C",
	}
	element, statistics := g.bytesOf()
	if centred {
		axes["mean"], axes["bias"], axes["dbias"] = "N", "C", "C"
		statistics *= 2
	}
	one, statistics := element*float64(n*c), statistics*float64(n)
	return operations{
		sizes: map[byte]int{'N': n, 'C': c}, axes: axes, numbers: kernel.Call{Eps: kernel.LayerNormEps},
		timed: []timed{
			{op: kernel.NormForward, name: name + "_forward", bytes: 2*one + statistics, reach: memoryReach, samples: everyRow, most: 1},
			{op: kernel.NormBackwardInput, name: name + "_backward_input", bytes: 4*one + statistics, reach: memoryReach, samples: everyRow, most: 2},
			{op: kernel.NormBackwardWeight, name: name + "_backward_weight", bytes: 2*one + statistics, reach: memoryReach, samples: []sampling{{axis: 'C', runs: 16}}},
		},
	}
}

// crossEntropy measures the loss and the gradient of (n, v) logits, which are read and overwritten.
func (g *gpu) crossEntropy() {
	n, v := g.size(4096, 8), g.size(50257, 517)
	element, _ := g.bytesOf()
	g.operate(operations{
		sizes:   map[byte]int{'N': n, 'V': v, '3': 3},
		axes:    map[string]string{"out": "3N", "logits": "NV", "targets": "N"},
		lists:   map[string][]int32{"targets": indices(n, v)},
		restore: "logits", numbers: kernel.Call{Scale: 1},
		timed: []timed{{
			op: kernel.CrossEntropy, name: "cross_entropy", bytes: 2 * element * float64(n*v), reach: memoryReach,
			samples: []sampling{{axis: 'N', runs: 8}}, most: 1,
		}},
	})
}

var everyWindow = []sampling{{axis: 'N', runs: 5, width: 1024}}

// adamw measures the update of n bf16 weights with their master copy; half of the weights decay. It
// writes weights, reads and writes masters and both moments, and reads gradients.
func (g *gpu) adamw() {
	n := g.size(1e8, 5000)
	element, wide := g.bytesOf()
	g.operate(operations{
		sizes:   map[byte]int{'N': n},
		axes:    map[string]string{"w": "N", "master": "N", "m": "N", "v": "N", "g": "N"},
		uniform: "v",
		numbers: kernel.Call{AdamW: kernel.AdamW{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Decayed: n / 2, GradScale: 0.5, Step: 3}},
		timed:   []timed{{op: kernel.AdamWUpdate, name: "adamw", bytes: float64(n) * (element + 7*wide), reach: memoryReach, samples: everyWindow, most: 0.1}},
	})
}

// gelu measures the activation: forward reads one and writes one array of n,
// backward reads two and writes one.
func (g *gpu) gelu() {
	n := g.size(1<<28, 5000)
	element, _ := g.bytesOf()
	one := element * float64(n)
	g.operate(operations{
		sizes: map[byte]int{'N': n},
		axes:  map[string]string{"inp": "N", "out": "N", "dout": "N", "dinp": "N"},
		timed: []timed{
			{op: kernel.GELUForward, name: "gelu_forward", bytes: 2 * one, samples: everyWindow, most: 4},
			{op: kernel.GELUBackward, name: "gelu_backward", bytes: 3 * one, samples: everyWindow, most: 4},
		},
	})
}

// embedding measures the look-up of b·t tokens in a table (v, c), and its backward. Bytes count
// every used row once, and every position once:
//
//	forward   rows of the tables, out
//	backward  dout, rows of the wide gradients twice
func (g *gpu) embedding() {
	b, t, c, v := g.size(32, 3), g.size(2048, 5), g.size(1024, 64), g.size(50257, 17)
	n := b * t
	tokens, positions, used := indices(n, v), make([]int32, n), map[int32]bool{}
	for i := range positions {
		positions[i], used[tokens[i]] = int32(i%t), true
	}
	element, wide := g.bytesOf()
	rows, moved := float64((len(used)+t)*c), element*float64(n*c)+4*float64(n)
	g.operate(operations{
		sizes: map[byte]int{'N': n, 'C': c, 'V': v, 'P': t},
		axes: map[string]string{
			"tokens": "N>V", "positions": "N>P", "wte": "VC", "wpe": "PC", "dwte": "VC", "dwpe": "PC", "out": "NC", "dout": "NC",
		},
		lists: map[string][]int32{"tokens": tokens, "positions": positions},
		timed: []timed{
			{op: kernel.EmbeddingForward, name: "embedding_forward", bytes: moved + rows*element, samples: everyRow},
			{op: kernel.EmbeddingBackward, name: "embedding_backward", bytes: moved + 2*rows*wide, reach: 0.5, samples: []sampling{{axis: 'C', runs: 2, width: 4}}},
		},
	})
}

// llama measures the parts of LLaMA's blocks and of mixtures beside products and attention. All of
// them are limited by memory.
func (g *gpu) llama() { g.operate(g.norm("rmsnorm", false), g.swiglu(), g.rotary(), g.combine()) }

// swiglu measures the gated activation, (n, 2c) to (n, c).
func (g *gpu) swiglu() operations {
	n, c := g.size(1<<16, 48), g.size(2816, 72)
	element, _ := g.bytesOf()
	one := element * float64(n*c)
	return operations{
		sizes: map[byte]int{'N': n, 'C': c, '2': 2},
		axes:  map[string]string{"out": "NC", "dout": "NC", "gateup": "N2C", "dgateup": "N2C"},
		timed: []timed{
			{op: kernel.SwiGLUForward, name: "swiglu_forward", bytes: 3 * one, reach: memoryReach, samples: everyRow, most: 1},
			{op: kernel.SwiGLUBackward, name: "swiglu_backward", bytes: 5 * one, reach: memoryReach, samples: everyRow, most: 1},
		},
	}
}

// rotary measures the rotation of queries and keys with heads of 128 channels. There are a quarter
// as many keys as queries.
func (g *gpu) rotary() operations {
	const heads = 10
	n, hs, places := g.size(1<<16, 48), g.size(128, 16), g.size(4096, 17)
	element, _ := g.bytesOf()
	return operations{
		sizes: map[byte]int{'N': n, 'C': (heads + 2) * hs, 'S': hs, 'P': places},
		axes:  map[string]string{"qkv": "NC", "positions": "N>P", "table": "PS"},
		lists: map[string][]int32{"positions": indices(n, places)}, restore: "qkv", numbers: kernel.Call{Dims: kernel.Dims{NH: heads}},
		timed: []timed{{op: kernel.Rotary, name: "rotary", bytes: 2*element*float64(n*heads*hs) + 4*float64(n), samples: everyRow, most: 1}},
	}
}

// combine measures the weighted sum of two rows for each token, and the gradient of the
// weights:
//
//	rows       out, inp twice
//	gradient   dout, inp twice
func (g *gpu) combine() operations {
	const each = 2
	n, c := g.size(1<<16, 48), g.size(1024, 64)
	element, _ := g.bytesOf()
	one := element * float64(n*c)
	return operations{
		sizes: map[byte]int{'N': n, 'C': c, 'K': each, 'R': n * each},
		axes:  map[string]string{"inp": "RC", "rows": "NK>R", "factor": "NK", "dfactor": "NK", "out": "NC", "dout": "NC"},
		lists: map[string][]int32{"rows": indices(n*each, n*each)},
		timed: []timed{
			{op: kernel.CombineRows, name: "combine_rows", bytes: (1 + each) * one, samples: everyRow},
			{op: kernel.CombineGradient, name: "combine_gradient", bytes: (1 + each) * one, samples: everyRow},
		},
	}
}

// experts measures the products of a mixture of 8 experts: forward, backward for inputs and
// backward for weights, one call each. The last expert has eight times the rows of the first.
func (g *gpu) experts() {
	const count, gap = 8, 64
	n, c, o := g.size(1<<15, 72), g.size(2048, 24), g.size(4096, 40)
	ends := make([]int32, count+1)
	for e := range count {
		ends[e+1] = ends[e] + int32((e+1)*n/(count*(count+1)/2))
	}
	g.operate(operations{
		sizes: map[byte]int{'N': int(ends[count]), 'C': c, 'O': o, 'E': count},
		axes: map[string]string{
			"inp": "NC", "dinp": "NC", "out": "NO", "dout": "NO", "weights": "EOC", "dweights": "EOC", "ends": "#N",
		},
		lists: map[string][]int32{"ends": ends}, restore: "dweights", numbers: kernel.Call{Dims: kernel.Dims{Gap: gap}},
		timed: products("experts_", "", kernel.GroupedForward, kernel.GroupedBackwardInput, kernel.GroupedBackwardWeight),
	})
}

// products returns the three passes of a linear layer, named before_PASSafter.
func products(before, after string, forward, input, weight kernel.Op) []timed {
	return []timed{
		{op: forward, name: before + "forward" + after, samples: []sampling{{axis: 'N', runs: 16}, {axis: 'O', runs: 64}}},
		{op: input, name: before + "backward_input" + after, samples: []sampling{{axis: 'N', runs: 16}, {axis: 'C', runs: 64}}},
		{op: weight, name: before + "backward_weight" + after, samples: []sampling{{axis: 'O', runs: 16}, {axis: 'C', runs: 64}}},
	}
}

// productTokens is the rows of products in a microbatch: four sequences of 1024 tokens or two of
// 2048.
const productTokens = 4096

// gptSmall is GPT-2 124M with a vocabulary padded to the size of gptMedium's.
var gptSmall = model.Config{Blocks: 12, Hidden: 768, Heads: 12, Sequence: 1024, Vocab: 50304, Seed: 1}

// products measures every product of GPT-2 124M and of the model of the step, in bf16: the three
// passes of a linear layer. The layers are queries, keys and values; attention's output; MLP up and
// down; head. All of them except the head have a bias. Only operations of the product count, while
// times include the bias or its gradient.
func (g *gpu) products() {
	var list []operations
	for _, m := range []model.Config{gptSmall, gptMedium} {
		if g.Quick {
			m.Hidden, m.Vocab = m.Hidden/16, 517
		}
		h := m.Hidden
		for _, shape := range [][2]int{{h, 3 * h}, {h, h}, {h, 4 * h}, {4 * h, h}, {h, m.Vocab}} {
			n, c, o := g.size(productTokens, 40), shape[0], shape[1]
			axes := map[string]string{"inp": "NC", "dinp": "NC", "out": "NO", "dout": "NO", "weight": "OC", "dweight": "OC"}
			if o != m.Vocab {
				axes["bias"], axes["dbias"] = "O", "O"
			}
			list = append(list, operations{
				sizes: map[byte]int{'N': n, 'C': c, 'O': o},
				axes:  axes,
				timed: products("product_", fmt.Sprintf("_%dx%dx%d", n, c, o), kernel.MatmulForward, kernel.MatmulBackwardInput, kernel.MatmulBackwardWeight),
			})
		}
	}
	g.operate(list...)
	g.fallenBack()
}

// tune makes the backend choose the fastest of its library's algorithms for products, as in
// training. It reports the choice with Say.
func (g *gpu) tune(products []kernel.Product) {
	k, ok := g.BF16.(kernel.Tuner)
	if !ok {
		return
	}
	choices, err := k.Tune(g.Device, g.stream, products)
	if err == nil {
		err = k.Choose(choices)
	}
	if g.err = errors.Join(g.err, err); g.err == nil && g.Say != nil {
		g.Say("algorithms of products: " + string(choices))
	}
}

// fallenBack adds a figure: how many kinds of product had no algorithm in the library and used the
// plain kernel, since the backend began. It should be 0.
func (g *gpu) fallenBack() {
	if k, ok := g.BF16.(kernel.Tuner); ok {
		g.figure("products_fallen_back", float64(k.Fallbacks()), "products, 0 wanted", 0, 0)
	}
}
