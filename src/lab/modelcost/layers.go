package modelcost

import "fmt"

// Work is what a rank works on: a microbatch of sequences, and its share of every layer.
type Work struct {
	Sequence int // tokens of a sequence
	Batch    int // sequences of a microbatch
	Tensor   int // ranks that share every layer's products (tensor and sequence parallelism)
	Experts  int // ranks that share the experts of a layer; tokens are assumed to go to all of them evenly
	Half     bool
}

// Layer is a layer's forward for one microbatch, on one rank.
type Layer struct {
	Name         string
	Parameters   int64
	MultiplyAdds float64
	copied       int64 // parameters of a matrix that this stage needs and another layer has
	kernels      []kernel
	output       float64 // elements that the next layer gets
}

// kernel is one operation of a forward.
type kernel struct {
	multiplyAdds float64
	exponentials float64 // of attention; 0: the operation is a product, or computes little
	weights      float64 // elements of matrices that are read
	moved        float64 // elements of activations that are read and written
	kept         float64 // bytes of activations that backward needs
}

const elementBytes = 2 // bfloat16

const embedding = "embedding"

// Layers returns the layers of the model. An error names the dimension that the ranks cannot share.
func (m Model) Layers(w Work) ([]Layer, error) {
	for _, x := range []struct {
		name      string
		of, ranks int
	}{
		{"num_attention_heads", m.heads, w.Tensor},
		{"num_key_value_heads", m.keys, w.Tensor},
		{"experts", max(m.experts, 1), w.Experts},
	} {
		if x.of%x.ranks != 0 {
			return nil, fmt.Errorf("%s: %d on %d ranks, want a divisor", x.name, x.of, x.ranks)
		}
	}
	c := counter{Model: m, Work: w, tokens: float64(w.Sequence) * float64(w.Batch)}
	h := float64(m.hidden)
	table := h * float64(m.vocab)
	c.begin(embedding)
	c.layer.Parameters = c.parameters(table)
	c.move(2*c.tokens*h, 0)
	for b := range m.blocks {
		c.block(fmt.Sprintf("block.%d", b), m.windows[b], m.sparse[b])
	}
	for k := range m.mtps {
		c.begin(fmt.Sprintf("mtp.%d", k))
		if k == 0 {
			c.layer.copied = c.parameters(table) // the tokens that it embeds
		}
		c.norm(h)
		c.norm(h)
		c.product(2*h, h, 2*h)
		c.attention(m.windows[m.blocks-1])
		c.feedForward(m.sparse[m.blocks-1])
		c.norm(h)
	}
	c.begin("head")
	if m.tied {
		c.layer.copied = c.parameters(table)
	}
	c.norm(h)
	for k := range 1 + m.mtps {
		before := c.layer.Parameters
		c.product(h, float64(m.vocab), h)
		if m.tied || k > 0 {
			c.layer.Parameters = before
		}
		// Logits are in float32: Korthikanti et al. 2022, section 4.3.
		logits := c.tokens * float64(m.vocab) / float64(w.Tensor)
		c.move(2*logits, 4*logits)
	}
	return c.finish(), nil
}

// counter counts the operations of the layers.
type counter struct {
	Model
	Work
	tokens float64
	layer  *Layer
	list   []*Layer
}

func (c *counter) begin(name string) {
	c.layer = &Layer{Name: name, output: c.tokens * float64(c.hidden) / float64(c.Tensor)}
	c.list = append(c.list, c.layer)
}

func (c *counter) finish() []Layer {
	var list []Layer
	for _, l := range c.list {
		for _, k := range l.kernels {
			l.MultiplyAdds += k.multiplyAdds
		}
		list = append(list, *l)
	}
	return list
}

// parameters returns a rank's share of a matrix's elements.
func (c *counter) parameters(elements float64) int64 { return int64(elements) / int64(c.Tensor) }

func (c *counter) add(k kernel) { c.layer.kernels = append(c.layer.kernels, k) }

// move adds an operation without products. Ranks that share the layer share the tokens.
func (c *counter) move(elements, kept float64) {
	c.add(kernel{moved: elements / float64(c.Tensor), kept: kept / float64(c.Tensor)})
}

// norm adds a norm of some channels. Every rank has its parameters.
func (c *counter) norm(channels float64) {
	c.layer.Parameters += int64(channels)
	c.move(2*c.tokens*channels, elementBytes*c.tokens*channels)
}

// product adds a product of all tokens with a matrix (in, out). kept is the channels of its input that
// no operation before it keeps.
func (c *counter) product(in, out, kept float64) {
	c.layer.Parameters += c.parameters(in * out)
	t := float64(c.Tensor)
	c.add(kernel{
		multiplyAdds: c.tokens * in * out / t, weights: in * out / t, moved: c.tokens * (in + out/t),
		kept: elementBytes * c.tokens * kept / t,
	})
}

// replicated adds a product whose matrix every rank has. Ranks share the tokens.
func (c *counter) replicated(in, out, kept float64) {
	c.layer.Parameters += int64(in * out)
	n := c.tokens / float64(c.Tensor)
	c.add(kernel{multiplyAdds: n * in * out, weights: in * out, moved: n * (in + out), kept: elementBytes * n * kept})
}

// block adds a block: attention and a feed-forward layer, each with norms.
func (c *counter) block(name string, window int, sparse bool) {
	first, second := ".attention", ".mlp"
	if c.latent.keys > 0 {
		first = ".mla"
	}
	if sparse {
		second = ".moe"
	}
	if !c.Half {
		first = ""
	}
	c.begin(name + first)
	c.attention(window)
	if c.Half {
		c.begin(name + second)
	}
	c.feedForward(sparse)
}

// attention adds attention over the tokens of a window (0: all), with its norms.
func (c *counter) attention(window int) {
	h, heads, keys, size := float64(c.hidden), float64(c.heads), float64(c.keys), float64(c.size)
	c.norm(h)
	left, values := size, size // channels of a head in the two products of attention
	if x := c.latent; x.keys > 0 {
		left, values = float64(x.plain+x.rotated), float64(x.values)
		keys = heads
		if x.queries > 0 {
			c.replicated(h, float64(x.queries), h)
			c.norm(float64(x.queries))
			c.product(float64(x.queries), heads*left, float64(x.queries))
		} else {
			c.product(h, heads*left, h)
		}
		c.replicated(h, float64(x.keys+x.rotated), 0)
		c.norm(float64(x.keys))
		c.product(float64(x.keys), heads*(float64(x.plain)+values), float64(x.keys))
	} else {
		c.product(h, (heads+2*keys)*size, h)
		if c.bias {
			c.layer.Parameters += c.parameters((heads + 2*keys) * size)
		}
		if c.normed {
			c.layer.Parameters += int64(2 * size)
			c.move(2*c.tokens*(heads+keys)*size, elementBytes*c.tokens*(heads+keys)*size)
		}
	}
	inside := heads*(left+values) + keys*(left+values) // queries, keys, values and results
	pairs := c.tokens * heads * c.seen(window)
	t := float64(c.Tensor)
	c.add(kernel{
		multiplyAdds: pairs * (left + values) / t, exponentials: pairs / t, moved: c.tokens * inside / t,
		kept: elementBytes * c.tokens * (inside - heads*values) / t, // the product behind keeps the results
	})
	c.product(heads*values, h, heads*values)
	if c.double {
		c.norm(h)
	}
}

// seen returns the mean number of tokens that a token attends to: itself and earlier ones, in the window.
func (c *counter) seen(window int) float64 {
	s, w := float64(c.Sequence), float64(c.Sequence)
	if window > 0 {
		w = min(w, float64(window))
	}
	return (w*(w+1)/2 + (s-w)*w) / s
}

// feedForward adds a feed-forward layer with its norms.
func (c *counter) feedForward(sparse bool) {
	h := float64(c.hidden)
	c.norm(h)
	if !sparse {
		c.gated(float64(c.wide), h)
	} else {
		c.replicated(h, float64(c.experts), h)
		if c.Type == deepSeek {
			c.layer.Parameters += int64(c.experts) // a bias for each expert
		}
		if c.shared > 0 {
			c.gated(float64(c.shared), 0)
		}
		c.mixture()
	}
	if c.double {
		c.norm(h)
	}
}

// gated adds down(act(gate(x)) · up(x)). kept is as in product.
func (c *counter) gated(wide, kept float64) {
	h := float64(c.hidden)
	c.product(h, 2*wide, kept)
	c.move(3*c.tokens*wide, elementBytes*2*c.tokens*wide)
	c.product(wide, h, wide)
}

// mixture adds the experts of a layer. A rank has its share of them, and as many rows as without sharing.
func (c *counter) mixture() {
	h, wide, t := float64(c.hidden), float64(c.expert), float64(c.Tensor)
	mine := float64(c.experts) / float64(c.Experts)
	rows := c.tokens * float64(c.chosen)
	c.layer.Parameters += c.parameters(3 * mine * h * wide)
	c.move(2*rows*h, 0) // rows go to their experts
	c.add(kernel{multiplyAdds: rows * h * 2 * wide / t, weights: mine * h * 2 * wide / t, moved: rows * (h + 2*wide/t), kept: elementBytes * rows * h / t})
	c.move(3*rows*wide, elementBytes*2*rows*wide)
	c.add(kernel{multiplyAdds: rows * h * wide / t, weights: mine * h * wide / t, moved: rows * (h + wide/t), kept: elementBytes * rows * wide / t})
	c.move(2*rows*h, 0) // and back
}
