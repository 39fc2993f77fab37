package model

import (
	"math"
	"math/cmplx"
)

// tape is plain reverse-mode differentiation of numbers (Griewank & Walther 2008, chapter
// 3): every number remembers of which it was made, and its derivative by each.
type tape struct{ made []made }

type made struct {
	of []int
	by []float64
}

// scalar is a value on the tape.
type scalar struct {
	x  float64
	at int
}

func (t *tape) put(x float64, of []scalar, by []float64) scalar {
	m := made{by: by}
	for _, o := range of {
		m.of = append(m.of, o.at)
	}
	t.made = append(t.made, m)
	return scalar{x, len(t.made) - 1}
}

// variables puts numbers on the tape of which derivatives are wanted.
func (t *tape) variables(x []float64) []scalar {
	list := make([]scalar, len(x))
	for i := range x {
		list[i] = t.put(x[i], nil, nil)
	}
	return list
}

func (t *tape) dot(a, b []scalar) scalar {
	sum, of, by := 0.0, []scalar(nil), []float64(nil)
	for i := range a {
		sum += a[i].x * b[i].x
		of, by = append(of, a[i], b[i]), append(by, b[i].x, a[i].x)
	}
	return t.put(sum, of, by)
}

func (t *tape) mul(a, b scalar) scalar { return t.dot([]scalar{a}, []scalar{b}) }
func (t *tape) add(a, b scalar) scalar {
	return t.put(a.x+b.x, []scalar{a, b}, []float64{1, 1})
}

func (t *tape) map1(a scalar, f, derivative float64) scalar {
	return t.put(f, []scalar{a}, []float64{derivative})
}

// gradients returns the derivatives of a number by all.
func (t *tape) gradients(of scalar) []float64 {
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
type plainLlama struct {
	tape
	c       Config
	weights map[string][]scalar // by Param.Weight
}

func (p *plainLlama) rows(weight string, width int) [][]scalar {
	var rows [][]scalar
	for all := p.weights[weight]; len(all) > 0; all = all[width:] {
		rows = append(rows, all[:width])
	}
	return rows
}

func (p *plainLlama) product(weight string, x []scalar) []scalar {
	var y []scalar
	for _, row := range p.rows(weight, len(x)) {
		y = append(y, p.dot(row, x))
	}
	return y
}

// norm is x·w / sqrt(mean(x²) + eps).
func (p *plainLlama) norm(weight string, x []scalar) []scalar {
	square := p.dot(x, x)
	mean := square.x/float64(len(x)) + p.c.NormEps
	root := p.map1(square, 1/math.Sqrt(mean), -0.5/(mean*math.Sqrt(mean)*float64(len(x))))
	var y []scalar
	for i, w := range p.weights[weight] {
		y = append(y, p.mul(p.mul(x[i], root), w))
	}
	return y
}

// turned rotates channels i and i+d/2 of a head as the real and imaginary part of a number.
func (p *plainLlama) turned(head []scalar, position int) []scalar {
	half := len(head) / 2
	y := make([]scalar, len(head))
	for i := range half {
		e := cmplx.Exp(complex(0, float64(position)*wavelike(p.c.Rope, i, half)))
		a, b := head[i], head[i+half]
		y[i] = p.put(a.x*real(e)-b.x*imag(e), []scalar{a, b}, []float64{real(e), -imag(e)})
		y[i+half] = p.put(a.x*imag(e)+b.x*real(e), []scalar{a, b}, []float64{imag(e), real(e)})
	}
	return y
}

// wavelike returns a frequency by its wavelength, as transformers' modeling_rope_utils.py
// computes it.
func wavelike(r Rope, pair, pairs int) float64 {
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

// attend is causal attention of one sequence: rows of queries, keys and values of all heads.
func (p *plainLlama) attend(qkv [][]scalar) [][]scalar {
	d, group := p.c.Hidden/p.c.Heads, p.c.Heads/p.c.KeyValueHeads
	keys := p.c.Heads * d
	values := keys + p.c.KeyValueHeads*d
	out := make([][]scalar, len(qkv))
	for t := range qkv {
		for h := range p.c.Heads {
			at := h / group * d
			q := p.turned(qkv[t][h*d:][:d], t)
			var scores []scalar
			for s := range t + 1 {
				k := p.turned(qkv[s][keys+at:][:d], s)
				score := p.dot(q, k)
				scores = append(scores, p.map1(score, score.x/math.Sqrt(float64(d)), 1/math.Sqrt(float64(d))))
			}
			weights := p.softmax(scores)
			for x := range d {
				var column []scalar
				for s := range t + 1 {
					column = append(column, qkv[s][values+at+x])
				}
				out[t] = append(out[t], p.dot(weights, column))
			}
		}
	}
	return out
}

func (p *plainLlama) softmax(z []scalar) []scalar {
	sum, y := 0.0, make([]scalar, len(z))
	for _, v := range z {
		sum += math.Exp(v.x)
	}
	for i, v := range z {
		by := make([]float64, len(z))
		for j, w := range z {
			by[j] = -math.Exp(v.x) / sum * math.Exp(w.x) / sum
		}
		by[i] += math.Exp(v.x) / sum
		y[i] = p.put(math.Exp(v.x)/sum, z, by)
	}
	return y
}

// feedForward is the MLP of a block, or of its experts that a token goes to.
func (p *plainLlama) feedForward(at string, x []scalar) []scalar {
	if KindOf[Experts](p.c).Count > 0 {
		return p.mixture(at, x)
	}
	return p.gated(at, x)
}

func (p *plainLlama) gated(at string, x []scalar) []scalar {
	gateup := p.product(at+"gateup.weight", x)
	active := make([]scalar, p.c.Intermediate)
	for i := range active {
		g := gateup[i]
		sigmoid := 1 / (1 + math.Exp(-g.x))
		active[i] = p.mul(p.map1(g, g.x*sigmoid, sigmoid*(1+g.x*(1-sigmoid))), gateup[p.c.Intermediate+i])
	}
	return p.product(at+"down.weight", active)
}

// Forward returns the logits of every token of a sequence.
func (p *plainLlama) Forward(tokens []int32) (logits [][]scalar) {
	table := p.rows(TokenWeight, p.c.Hidden)
	x := make([][]scalar, len(tokens))
	for t, token := range tokens {
		x[t] = table[token]
	}
	add := func(t int, y []scalar) {
		sum := make([]scalar, len(y))
		for i := range y {
			sum[i] = p.add(x[t][i], y[i])
		}
		x[t] = sum
	}
	for b := range p.c.Blocks {
		at := InBlock(b).layer + "/"
		qkv := make([][]scalar, len(x))
		for t := range x {
			qkv[t] = p.product(at+"qkv.weight", p.norm(at+"norm1.weight", x[t]))
		}
		for t, y := range p.attend(qkv) {
			add(t, p.product(at+"proj.weight", y))
		}
		for t := range x {
			add(t, p.feedForward(at, p.norm(at+"norm2.weight", x[t])))
		}
	}
	head := "head/head.weight"
	if p.c.Tied {
		head = TokenWeight
	}
	for t := range x {
		logits = append(logits, p.product(head, p.norm("head/norm.weight", x[t])))
	}
	return logits
}

// loss returns the mean cross-entropy of sequences' logits.
func (p *plainLlama) loss(logits [][]scalar, targets []int32) scalar {
	sum := p.put(0, nil, nil)
	for t, z := range logits {
		probability := p.softmax(z)[targets[t]]
		scale := float64(len(targets))
		sum = p.add(sum, p.map1(probability, -math.Log(probability.x)/scale, -1/(probability.x*scale)))
	}
	return sum
}
