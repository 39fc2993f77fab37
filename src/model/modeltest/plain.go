package modeltest

import (
	"dynmo/src/model"
	"dynmo/src/tensor"
	"math"
	"math/cmplx"
	"slices"
	"testing"
)

// tape is plain reverse-mode differentiation of scalars (Griewank & Walther 2008, chapter 3). Every
// scalar remembers the scalars from which it was computed, and its derivative by each.
type tape struct{ made []made }

type made struct {
	of []int
	by []float64
}

// Scalar is a value on the tape.
type Scalar struct {
	X  float64
	at int
}

func (t *tape) Put(x float64, of []Scalar, by []float64) Scalar {
	m := made{by: by}
	for _, o := range of {
		m.of = append(m.of, o.at)
	}
	t.made = append(t.made, m)
	return Scalar{x, len(t.made) - 1}
}

// variables puts the scalars on the tape with respect to which derivatives are wanted.
func (t *tape) variables(x []float64) []Scalar {
	list := make([]Scalar, len(x))
	for i := range x {
		list[i] = t.Put(x[i], nil, nil)
	}
	return list
}

func (t *tape) Dot(a, b []Scalar) Scalar {
	sum, of, by := 0.0, []Scalar(nil), []float64(nil)
	for i := range a {
		sum += a[i].X * b[i].X
		of, by = append(of, a[i], b[i]), append(by, b[i].X, a[i].X)
	}
	return t.Put(sum, of, by)
}

func (t *tape) Mul(a, b Scalar) Scalar { return t.Dot([]Scalar{a}, []Scalar{b}) }
func (t *tape) Add(a, b Scalar) Scalar {
	return t.Put(a.X+b.X, []Scalar{a, b}, []float64{1, 1})
}

func (t *tape) Map(a Scalar, f, derivative float64) Scalar {
	return t.Put(f, []Scalar{a}, []float64{derivative})
}

// gradients returns the derivatives of a number by all.
func (t *tape) Derivatives(of Scalar) []float64 {
	d := make([]float64, len(t.made))
	d[of.at] = 1
	for i := len(d) - 1; i >= 0; i-- {
		for k, o := range t.made[i].of {
			d[o] += d[i] * t.made[i].by[k]
		}
	}
	return d
}

// plainLlama is the LLaMA model (Touvron et al. 2023, section 2.2) number by number, as Hugging
// Face's modelling code has it.
type Plain struct {
	tape
	Config    model.Config
	weights   map[string][]Scalar // by Param.Weight
	positions []int               // of the tokens that are in a block
	// FeedForward is the MLP of a block whose parameters begin with a text; nil: it is gated.
	FeedForward func(at string, x []Scalar) []Scalar
	// Attend is what the heads of a block attend to, of one sequence whose normed states are x;
	// nil: all keys.
	Attend func(at string, x [][]Scalar) [][]Scalar
	// Block is what becomes of the states of a sequence at a block, which through takes some of
	// through, whose positions ascend; nil: all go through.
	Block func(block int, x [][]Scalar, through func(some [][]Scalar, positions []int) [][]Scalar) [][]Scalar
	// Behind is given the states behind each block of a sequence; nil: nothing is.
	Behind func(block int, x [][]Scalar)
}

func (p *Plain) Rows(weight string, width int) [][]Scalar {
	var rows [][]Scalar
	for all := p.weights[weight]; len(all) > 0; all = all[width:] {
		rows = append(rows, all[:width])
	}
	return rows
}

func (p *Plain) Product(weight string, x []Scalar) []Scalar {
	var y []Scalar
	for _, row := range p.Rows(weight, len(x)) {
		y = append(y, p.Dot(row, x))
	}
	return y
}

// Norm is x·w / sqrt(mean(x²) + eps).
func (p *Plain) Norm(weight string, x []Scalar) []Scalar {
	square := p.Dot(x, x)
	mean := square.X/float64(len(x)) + p.Config.NormEps
	root := p.Map(square, 1/math.Sqrt(mean), -0.5/(mean*math.Sqrt(mean)*float64(len(x))))
	var y []Scalar
	for i, w := range p.weights[weight] {
		y = append(y, p.Mul(p.Mul(x[i], root), w))
	}
	return y
}

// Turned rotates channels i and i+d/2 of a head as the real and imaginary part of a number.
func (p *Plain) Turned(head []Scalar, position int) []Scalar {
	half := len(head) / 2
	y := make([]Scalar, len(head))
	for i := range half {
		e := cmplx.Exp(complex(0, float64(position)*wavelike(p.Config.Rope, i, half)))
		a, b := head[i], head[i+half]
		y[i] = p.Put(a.X*real(e)-b.X*imag(e), []Scalar{a, b}, []float64{real(e), -imag(e)})
		y[i+half] = p.Put(a.X*imag(e)+b.X*real(e), []Scalar{a, b}, []float64{imag(e), real(e)})
	}
	return y
}

// wavelike returns a frequency by its wavelength, as transformers' modeling_rope_utils.py
// computes it.
func wavelike(r model.Rope, pair, pairs int) float64 {
	inverse := 1 / math.Pow(r.Base, float64(2*pair)/float64(2*pairs))
	switch r.Scaling {
	case "linear":
		return inverse / r.Factor
	case "llama3":
		length := float64(r.Original)
		wavelength := 2 * math.Pi / inverse
		if wavelength < length/r.High {
			return inverse
		}
		if wavelength > length/r.Low {
			return inverse / r.Factor
		}
		smooth := (length/wavelength - r.Low) / (r.High - r.Low)
		return (1-smooth)*inverse/r.Factor + smooth*inverse
	}
	return inverse
}

// attention is what heads attend to, or what Attend has in its place.
func (p *Plain) attention(at string, x [][]Scalar) [][]Scalar {
	if p.Attend != nil {
		return p.Attend(at, x)
	}
	qkv := make([][]Scalar, len(x))
	for t := range x {
		qkv[t] = p.Product(at+"qkv.weight", x[t])
	}
	return p.attend(qkv)
}

// attend is causal attention of one sequence: rows of queries, keys and values of all heads.
func (p *Plain) attend(qkv [][]Scalar) [][]Scalar {
	d, group := p.Config.Hidden/p.Config.Heads, p.Config.Heads/p.Config.KeyValueHeads
	keys := p.Config.Heads * d
	values := keys + p.Config.KeyValueHeads*d
	out := make([][]Scalar, len(qkv))
	for t := range qkv {
		for h := range p.Config.Heads {
			at := h / group * d
			q := p.Turned(qkv[t][h*d:][:d], p.positions[t])
			var scores []Scalar
			for s := range t + 1 {
				k := p.Turned(qkv[s][keys+at:][:d], p.positions[s])
				score := p.Dot(q, k)
				scores = append(scores, p.Map(score, score.X/math.Sqrt(float64(d)), 1/math.Sqrt(float64(d))))
			}
			weights := p.Softmax(scores)
			for x := range d {
				var column []Scalar
				for s := range t + 1 {
					column = append(column, qkv[s][values+at+x])
				}
				out[t] = append(out[t], p.Dot(weights, column))
			}
		}
	}
	return out
}

func (p *Plain) Softmax(z []Scalar) []Scalar {
	sum, y := 0.0, make([]Scalar, len(z))
	for _, v := range z {
		sum += math.Exp(v.X)
	}
	for i, v := range z {
		by := make([]float64, len(z))
		for j, w := range z {
			by[j] = -math.Exp(v.X) / sum * math.Exp(w.X) / sum
		}
		by[i] += math.Exp(v.X) / sum
		y[i] = p.Put(math.Exp(v.X)/sum, z, by)
	}
	return y
}

// feedForward is the MLP of a block, or what FeedForward has in its place.
func (p *Plain) feedForward(at string, x []Scalar) []Scalar {
	if p.FeedForward != nil {
		return p.FeedForward(at, x)
	}
	return p.Gated(at, x)
}

func (p *Plain) Gated(at string, x []Scalar) []Scalar {
	gateup := p.Product(at+"gateup.weight", x)
	active := make([]Scalar, p.Config.Intermediate)
	for i := range active {
		g := gateup[i]
		sigmoid := 1 / (1 + math.Exp(-g.X))
		active[i] = p.Mul(p.Map(g, g.X*sigmoid, sigmoid*(1+g.X*(1-sigmoid))), gateup[p.Config.Intermediate+i])
	}
	return p.Product(at+"down.weight", active)
}

// block is what a block makes of states.
func (p *Plain) block(at string, states [][]Scalar) [][]Scalar {
	x := slices.Clone(states)
	add := func(t int, y []Scalar) {
		sum := make([]Scalar, len(y))
		for i := range y {
			sum[i] = p.Add(x[t][i], y[i])
		}
		x[t] = sum
	}
	normed := make([][]Scalar, len(x))
	for t := range x {
		normed[t] = p.Norm(at+"norm1.weight", x[t])
	}
	for t, y := range p.attention(at, normed) {
		add(t, p.Product(at+"proj.weight", y))
	}
	for t := range x {
		add(t, p.feedForward(at, p.Norm(at+"norm2.weight", x[t])))
	}
	return x
}

// Forward returns the logits of every token of a sequence.
func (p *Plain) Forward(tokens []int32) (logits [][]Scalar) {
	table := p.Rows(model.TokenWeight, p.Config.Hidden)
	x := make([][]Scalar, len(tokens))
	for t, token := range tokens {
		x[t] = table[token]
	}
	all := make([]int, len(tokens))
	for t := range all {
		all[t] = t
	}
	for b := range p.Config.Blocks {
		through := func(some [][]Scalar, positions []int) [][]Scalar {
			p.positions = positions
			return p.block(model.InBlock(b).Layer+"/", some)
		}
		if p.Block != nil {
			x = p.Block(b, x, through)
		} else {
			x = through(x, all)
		}
		if p.Behind != nil {
			p.Behind(b, x)
		}
	}
	head := "head/head.weight"
	if p.Config.Tied {
		head = model.TokenWeight
	}
	for t := range x {
		logits = append(logits, p.Product(head, p.Norm("head/norm.weight", x[t])))
	}
	return logits
}

// Loss returns the mean cross-entropy of sequences' logits.
func (p *Plain) Loss(logits [][]Scalar, targets []int32) Scalar {
	sum := p.Put(0, nil, nil)
	for t, z := range logits {
		probability := p.Softmax(z)[targets[t]]
		scale := float64(len(targets))
		sum = p.Add(sum, p.Map(probability, -math.Log(probability.X)/scale, -1/(probability.X*scale)))
	}
	return sum
}

// PlainOf returns the plain model with a chain's weights, and its logits. change, unless nil,
// sets its fields.
func PlainOf(ch *Chain, change func(p *Plain)) (*Plain, [][]Scalar) {
	p := &Plain{Config: ch.S.Config, weights: make(map[string][]Scalar)}
	if change != nil {
		change(p)
	}
	for _, l := range ch.S.Layers {
		for _, w := range l.Params() {
			if !w.Borrowed() {
				p.weights[w.Weight] = append(p.weights[w.Weight], p.variables(tensor.Of[float64](w.W))...)
			}
		}
	}
	var logits [][]Scalar
	for sequence := range slices.Chunk(ch.Tokens, ch.X.T) {
		logits = append(logits, p.Forward(sequence)...)
	}
	return p, logits
}

// Descend takes a step of gradient descent on the chain's weights.
func (c *Chain) Descend(rate float64) {
	for _, l := range c.S.Layers {
		for _, q := range l.Params() {
			w, g := tensor.Of[float64](q.W), tensor.Of[float64](q.G)
			for i := range w {
				w[i] -= rate * g[i]
			}
		}
	}
}

func EqualGradients(t *testing.T, ch *Chain, p *Plain, want []float64) {
	t.Helper()
	got := make(map[string][]float64) // a tied matrix: the sum of both ends
	for _, l := range ch.S.Layers {
		for _, w := range l.Params() {
			g := tensor.Of[float64](w.G)
			if w.Borrowed() {
				for i := range g {
					got[w.Weight][w.First*w.Cols+i] += g[i]
				}
				continue
			}
			got[w.Weight] = append(got[w.Weight], g...)
		}
	}
	for weight, variables := range p.weights {
		for i, v := range variables {
			if off := math.Abs(got[weight][i] - want[v.at]); off > 1e-10 {
				t.Fatalf("%s[%d]: gradient %v, plainly %v", weight, i, got[weight][i], want[v.at])
			}
		}
	}
}
