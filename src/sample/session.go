package sample

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/kernel/ref"
)

// Session is a text that a model is given, token by token.
type Session struct {
	m    *Model
	kept []kept // of each block
	n    int    // tokens so far

	x, normed, mean, rstd, qkv, attended, pre, inner []float32 // of the tokens that are fed
	logits                                           []float32
}

// kept is the keys and values of all tokens so far: (heads, sequence, head size), so
// that those of a head lie together.
type kept struct{ keys, values []float32 }

// NewSession returns a session of no tokens.
func (m *Model) NewSession() *Session {
	c := m.Config
	s := &Session{m: m, kept: make([]kept, c.Blocks), logits: make([]float32, c.Vocab)}
	for i := range s.kept {
		s.kept[i] = kept{make([]float32, c.Sequence*c.Hidden), make([]float32, c.Sequence*c.Hidden)}
	}
	return s
}

// Len returns how many tokens the session has been fed.
func (s *Session) Len() int { return s.n }

// Reset forgets all tokens.
func (s *Session) Reset() { s.n = 0 }

// Feed goes on with tokens, at least one, and returns the logits (V) of the token
// that follows the last, which are valid until the next call. It panics if the session
// gets longer than the model's sequence, or if a token is outside the vocabulary.
func (s *Session) Feed(tokens ...int32) []float32 {
	m, c, n := s.m, s.m.Config.Hidden, len(tokens)
	if n < 1 || s.n+n > m.Config.Sequence {
		panic("sample: no tokens, or more than the model has positions")
	}
	s.room(n)
	for i, token := range tokens {
		ref.Add(s.x[i*c:][:c], m.token[int(token)*c:][:c], m.position[(s.n+i)*c:][:c])
	}
	for i := range m.blocks {
		s.block(&m.blocks[i], s.kept[i], n)
	}
	s.n += n
	last := s.x[(n-1)*c : n*c]
	s.normalise(last, m.norm, 1)
	m.multiply(s.logits, s.normed, linear{weight: m.head}, 1, c, m.Config.Vocab)
	return s.logits
}

// room makes the activations of n tokens.
func (s *Session) room(n int) {
	c := s.m.Config.Hidden
	for _, r := range []struct {
		to    *[]float32
		width int
	}{{&s.x, c}, {&s.normed, c}, {&s.mean, 1}, {&s.rstd, 1}, {&s.qkv, 3 * c}, {&s.attended, c}, {&s.pre, 4 * c}, {&s.inner, 4 * c}} {
		if cap(*r.to) < n*r.width {
			*r.to = make([]float32, n*r.width)
		}
		*r.to = (*r.to)[:n*r.width]
	}
}

// normalise sets normed to the norm of inp (n, C).
func (s *Session) normalise(inp []float32, w norm, n int) {
	ref.LayerNormForward(s.normed, s.mean, s.rstd, inp, w.weight, w.bias, n, s.m.Config.Hidden)
}

// block takes n tokens through a block: x += proj(attend(qkv(norm1(x)))), then
// x += down(gelu(up(norm2(x)))).
func (s *Session) block(b *block, k kept, n int) {
	m, c := s.m, s.m.Config.Hidden
	s.normalise(s.x, b.norm1, n)
	m.multiply(s.qkv, s.normed, b.qkv, n, c, 3*c)
	m.team.share(m.Config.Heads, 1, func(lo, hi int) {
		for head := lo; head < hi; head++ {
			s.attend(k, head, n)
		}
	})
	m.multiply(s.normed, s.attended, b.proj, n, c, c)
	ref.Add(s.x, s.x, s.normed)
	s.normalise(s.x, b.norm2, n)
	m.multiply(s.pre, s.normed, b.up, n, c, 4*c)
	m.gelu(s.inner, s.pre)
	m.multiply(s.normed, s.inner, b.down, n, 4*c, c)
	ref.Add(s.x, s.x, s.normed)
}

// attend keeps the keys and values of a head for n tokens, and sets attended for
// them: with s_j = q·k_j/sqrt(size) over the tokens up to itself, the mean of their
// values weighted by softmax(s).
func (s *Session) attend(k kept, head, n int) {
	c, size := s.m.Config.Hidden, s.m.Config.Hidden/s.m.Config.Heads
	first := head * s.m.Config.Sequence * size
	keys, values := k.keys[first:], k.values[first:]
	scores := make([]float32, s.n+n)
	for i := range n {
		row := s.qkv[i*3*c+head*size:]
		at := (s.n + i) * size
		copy(keys[at:at+size], row[c:])
		copy(values[at:at+size], row[2*c:])
		p := scores[:s.n+i+1]
		matrix := func(data []float32) blas32.General {
			return blas32.General{Rows: len(p), Cols: size, Stride: size, Data: data[:len(p)*size]}
		}
		blas32.Gemv(blas.NoTrans, float32(1/math.Sqrt(float64(size))), matrix(keys), vector(row[:size]), 0, vector(p))
		softmax(p)
		blas32.Gemv(blas.Trans, 1, matrix(values), vector(p), 0, vector(s.attended[i*c+head*size:][:size]))
	}
}

// softmax replaces scores by their softmax.
func softmax(scores []float32) {
	largest := scores[0]
	for _, v := range scores {
		largest = max(largest, v)
	}
	sum := 0.0
	for i, v := range scores {
		e := math.Exp(float64(v - largest))
		scores[i] = float32(e)
		sum += e
	}
	blas32.Scal(float32(1/sum), vector(scores))
}
