package sample

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
)

// Session is a text that a model is given, token by token.
type Session struct {
	m         *Model
	positions int       // that there is room for
	kept      []kept    // of each block
	turns     []float32 // the table of rotary positions
	n         int       // tokens so far
	at        []int32   // the positions of the tokens that a block computes

	x, normed, mean, rstd, qkv, attended, pre, inner []float32 // of the tokens that are fed
	logits                                           []float32
	routed                                           routed
}

// kept is the keys and values of the tokens so far that a block computed: (heads that have some,
// positions, head size), so that those of a head lie together.
type kept struct {
	keys, values []float32
	n            int // tokens
}

// NewSession returns a session of no tokens, with room for so many, at most the model's
// sequence.
func (m *Model) NewSession(positions int) *Session {
	c := m.Config
	positions = min(positions, c.Sequence)
	size, _ := m.headed()
	s := &Session{m: m, positions: positions, kept: make([]kept, c.Blocks), logits: make([]float32, c.Vocab)}
	for i := range s.kept {
		s.kept[i] = kept{keys: make([]float32, positions*c.Keyed()*size), values: make([]float32, positions*c.Keyed()*size)}
	}
	if c.Rope.Turns() {
		for _, v := range c.Rope.Table(positions, size/2) {
			s.turns = append(s.turns, float32(v))
		}
	}
	return s
}

// Len returns how many tokens the session has been fed.
func (s *Session) Len() int { return s.n }

// Reset forgets all tokens.
func (s *Session) Reset() {
	s.n = 0
	for i := range s.kept {
		s.kept[i].n = 0
	}
}

// Feed goes on with tokens, at least one, and returns the logits (V) of the token
// that follows the last, which are valid until the next call. It panics if the session
// gets longer than it has room for, or if a token is outside the vocabulary.
func (s *Session) Feed(tokens ...int32) []float32 {
	m, c, n := s.m, s.m.Config.Hidden, len(tokens)
	if n < 1 || s.n+n > s.positions {
		panic("sample: no tokens, or more than there is room for")
	}
	s.room(n)
	for i, token := range tokens {
		row := s.x[i*c:][:c]
		copy(row, m.token[int(token)*c:][:c])
		if m.position != nil {
			ref.Add(row, row, m.position[(s.n+i)*c:][:c])
		}
	}
	for i := range m.blocks {
		s.at = s.at[:0]
		for k := range n {
			s.at = append(s.at, int32(s.n+k))
		}
		if m.routing != nil && m.routing.Routes(i) {
			s.route(&m.blocks[i], &s.kept[i], n)
			continue
		}
		s.block(&m.blocks[i], &s.kept[i], n)
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
	_, all := s.m.headed()
	inside, up := s.m.inside()
	for _, r := range []struct {
		to    *[]float32
		width int
	}{{&s.x, c}, {&s.normed, c}, {&s.mean, 1}, {&s.rstd, 1}, {&s.qkv, all}, {&s.attended, c}, {&s.pre, up}, {&s.inner, inside}} {
		resize(r.to, n*r.width)
	}
}

// resize makes memory of n floats, whatever they are.
func resize(to *[]float32, n int) {
	if cap(*to) < n {
		*to = make([]float32, n)
	}
	*to = (*to)[:n]
}

// normalise sets normed to the norm of inp (n, C).
func (s *Session) normalise(inp []float32, w norm, n int) {
	c := s.m.Config
	mean, eps := s.mean, kernel.LayerNormEps
	if c.NormEps > 0 {
		mean, eps = nil, c.NormEps
	}
	ref.NormForward(s.normed, mean, s.rstd, inp, w.weight, w.bias, n, c.Hidden, eps)
}

// block takes n tokens through a block: x += proj(attend(turn(qkv(norm1(x))))), then
// x += mlp(norm2(x)), or the sum of those of a mixture that tokens go to.
func (s *Session) block(b *block, k *kept, n int) {
	m, c := s.m, s.m.Config.Hidden
	_, all := m.headed()
	s.normalise(s.x, b.norm1, n)
	m.multiply(s.qkv, s.normed, b.qkv, n, c, all)
	s.turn(n)
	m.team.share(m.Config.Keyed(), 1, func(lo, hi int) {
		for head := lo; head < hi; head++ {
			s.keep(k, head, n)
			s.attend(k, head, n)
		}
	})
	k.n += n
	m.multiply(s.normed, s.attended, b.proj, n, c, c)
	ref.Add(s.x, s.x, s.normed)
	s.normalise(s.x, b.norm2, n)
	if m.mixture != nil {
		s.mix(b, n)
		return
	}
	s.mlp(s.normed, s.normed, b.mlps[0], n)
	ref.Add(s.x, s.x, s.normed)
}

// mlp sets out to an MLP of inp, both (n, C). They may be the same.
func (s *Session) mlp(out, inp []float32, w mlp, n int) {
	m, c := s.m, s.m.Config.Hidden
	inside, up := m.inside()
	pre, inner := s.pre[:n*up], s.inner[:n*inside]
	m.multiply(pre, inp, w.up, n, c, up)
	if m.gated() {
		m.swiglu(inner, pre, n, inside)
	} else {
		m.gelu(inner, pre)
	}
	m.multiply(out, inner, w.down, n, inside, c)
}

// turn turns the queries and keys of n tokens by their positions.
func (s *Session) turn(n int) {
	if s.turns == nil {
		return
	}
	size, all := s.m.headed()
	ref.Rotary(s.qkv, s.at[:n], s.turns, s.m.Config.Heads+s.m.Config.Keyed(), all, size, false)
}

// keep keeps the keys and values of n tokens, of a head that has some.
func (s *Session) keep(k *kept, head, n int) {
	c := s.m.Config
	size, all := s.m.headed()
	for i := range n {
		key := s.qkv[i*all+(c.Heads+head)*size:]
		at := (head*s.positions + k.n + i) * size
		copy(k.keys[at:at+size], key)
		copy(k.values[at:at+size], key[c.Keyed()*size:])
	}
}

// attend sets attended for n tokens, of the heads that share a head's keys and values: with
// s_j = q·k_j/sqrt(size) over the tokens up to itself, the mean of their values weighted by
// softmax(s).
func (s *Session) attend(k *kept, keyed, n int) {
	c := s.m.Config
	size, all := s.m.headed()
	first, group := keyed*s.positions*size, c.Heads/c.Keyed()
	scores := make([]float32, k.n+n)
	for i := range n {
		p := scores[:k.n+i+1]
		matrix := func(data []float32) blas32.General {
			return blas32.General{Rows: len(p), Cols: size, Stride: size, Data: data[first:][:len(p)*size]}
		}
		for head := keyed * group; head < (keyed+1)*group; head++ {
			query := s.qkv[i*all+head*size:][:size]
			blas32.Gemv(blas.NoTrans, float32(1/math.Sqrt(float64(size))), matrix(k.keys), vector(query), 0, vector(p))
			softmax(p)
			blas32.Gemv(blas.Trans, 1, matrix(k.values), vector(p), 0, vector(s.attended[i*c.Hidden+head*size:][:size]))
		}
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
