package nodebench

import (
	"errors"
	"fmt"

	"dynmo/src/kernel"
	"dynmo/src/model"
)

// productTokens is the rows of products in a microbatch: four sequences of 1024 tokens or two of
// 2048.
const productTokens = 4096

// gptSmall is GPT-2 124M with a vocabulary padded to the size of gptMedium's.
var gptSmall = model.Config{Blocks: 12, Hidden: 768, Heads: 12, Sequence: 1024, Vocab: 50304, Seed: 1}

// productShapes returns the input and output channels of all products of a GPT's layers: queries,
// keys and values; attention's output; MLP up and down; head.
func productShapes(c model.Config) [][2]int {
	h := c.Hidden
	return [][2]int{{h, 3 * h}, {h, h}, {h, 4 * h}, {4 * h, h}, {h, c.Vocab}}
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

// products measures every product of GPT-2 124M and of the model of the step, in bf16: the three
// passes of a linear layer. All layers except the head have a bias.
func (g *gpu) products() {
	defer g.fallenBack()
	for _, c := range []model.Config{gptSmall, gptMedium} {
		if g.Quick {
			c.Hidden, c.Vocab = c.Hidden/16, 517
		}
		for _, shape := range productShapes(c) {
			g.product(g.size(productTokens, 40), shape[0], shape[1], shape[1] != c.Vocab)
			if g.err != nil {
				return
			}
			g.free()
		}
	}
}

// product measures the passes of a linear layer of n rows from c to o channels. Only operations of
// the product count, while times include the bias or its gradient.
func (g *gpu) product(n, c, o int, biased bool) {
	k, d := g.BF16, g.BF16.DType()
	inp, weight, dout := g.normal(n*c, d), g.normal(o*c, d), g.normal(n*o, d)
	out, dinp, dweight := g.blank(n*o, d), g.blank(n*c, d), g.normal(o*c, d.Wide())
	bias, dbias := operand{}, operand{}
	if biased {
		bias, dbias = g.normal(o, d), g.normal(o, d.Wide())
	}
	if g.err != nil {
		return
	}
	g.tune([]kernel.Product{
		{Op: kernel.MatmulForward, N: n, C: c, O: o, Bias: biased},
		{Op: kernel.MatmulBackwardInput, N: n, C: c, O: o},
		{Op: kernel.MatmulBackwardWeight, N: n, C: c, O: o, Bias: biased},
	})
	if g.err != nil {
		return
	}
	calls := []func(){
		func() { k.MatmulForward(g.stream, out, inp.mem, weight.mem, bias.mem, n, c, o) },
		func() { k.MatmulBackwardInput(g.stream, dinp, dout.mem, weight.mem, n, c, o) },
		func() { k.MatmulBackwardWeight(g.stream, dweight.mem, dbias.mem, dout.mem, inp.mem, n, c, o) },
	}
	for _, call := range calls {
		call()
	}
	wrong := []int{
		g.sampled(out, n, o, d, func(i, j int, want *total) {
			for l := range c {
				want.add(inp.at(i*c+l) * weight.at(j*c+l))
			}
			if biased {
				want.add(bias.at(j))
			}
		}),
		g.sampled(dinp, n, c, d, func(i, j int, want *total) {
			for l := range o {
				want.add(dout.at(i*o+l) * weight.at(l*c+j))
			}
		}),
		g.sampled(dweight.mem, o, c, d.Wide(), func(i, j int, want *total) {
			want.add(dweight.at(i*c + j))
			for l := range n {
				want.add(dout.at(l*o+i) * inp.at(l*c+j))
			}
		}),
	}
	seconds := g.seconds(calls...)
	for i, pass := range []string{"forward", "backward_input", "backward_weight"} {
		g.rate(fmt.Sprintf("product_%s_%dx%dx%d", pass, n, c, o), 2*float64(n)*float64(c)*float64(o), seconds[i], wrong[i])
	}
}
