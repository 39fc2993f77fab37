package sample

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
)

// Session is a text that a model reads token by token.
type Session struct {
	m         *Model
	positions int       // positions with room
	kept      []kept    // of each block
	turns     []float32 // the table of rotary positions
	n         int       // tokens so far

	depth int // blocks that computed the last token

	leaving              *Leaving // nil: no token leaves
	prompt, added, first int      // tokens of the text: in its prompt, to add, and before the session's first

	// live is the number of tokens that a block computes. Their rows come first. The other tokens
	// have left, and the block computes only their keys and values.
	live  int
	at    []int32   // positions of the tokens
	slot  []int     // by token: index among the block's kept keys and values
	front []float32 // states of the computed tokens before the block in front of an exit

	x, normed, mean, rstd, qkv, attended, pre, inner []float32 // of the new tokens
	made                                             []float32 // input of the product for queries, keys and values
	logits, left                                     []float32 // left: logits of the last token, if it has left
	routed                                           routed
}

// kept has the keys and values of the tokens that a block has computed so far: (heads with keys,
// positions, head size). So the keys of a head are adjacent.
type kept struct {
	keys, values []float32
	n            int       // tokens
	sorted       [][]int32 // tokens whose keys lie in each bucket, (heads, buckets); see hashing
}

// NewSession returns a session without tokens. It has room for `positions` positions, or the
// model's sequence if that is less. leaving is the rule by which tokens leave; nil: none leaves.
func (m *Model) NewSession(positions int, leaving *Leaving) *Session {
	c := m.Config
	positions = min(positions, c.Sequence)
	size, _ := m.headed()
	s := &Session{m: m, positions: positions, leaving: leaving, kept: make([]kept, c.Blocks), logits: make([]float32, c.Vocab), left: make([]float32, c.Vocab)}
	for i := range s.kept {
		s.kept[i] = kept{keys: make([]float32, positions*c.Keyed()*size), values: make([]float32, positions*c.Keyed()*size)}
		if m.hashing != nil {
			s.kept[i].sorted = make([][]int32, c.Heads*m.buckets(&m.blocks[i]))
		}
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
		clear(s.kept[i].sorted)
	}
}

// Feed continues with tokens, at least one, and returns the logits (V) of the next token, which are
// valid until the next call. It panics if the session gets longer than its room, or if a token is
// outside the vocabulary.
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
	s.arrange(n)
	s.depth = m.Config.Blocks
	for i := range m.blocks {
		s.keepFront(i)
		if m.routing != nil && m.routing.Routes(i) {
			s.route(&m.blocks[i], &s.kept[i], n)
		} else {
			s.block(&m.blocks[i], &s.kept[i], n)
		}
		s.leave(i, n)
	}
	s.n += n
	last := slices.Index(s.slot, n-1)
	if last >= s.live {
		return s.left
	}
	s.project(s.x[last*c:][:c], m.norm, m.head)
	return s.logits
}

// arrange marks all of n new tokens as computed, in their order.
func (s *Session) arrange(n int) {
	s.live, s.at, s.slot = n, s.at[:0], s.slot[:0]
	for i := range n {
		s.at, s.slot = append(s.at, int32(s.n+i)), append(s.slot, i)
	}
}

// project computes the logits of a token's state.
func (s *Session) project(state []float32, w norm, head []float32) {
	c := s.m.Config
	s.normalise(state, w, 1)
	s.m.multiply(s.logits, s.normed, linear{weight: head}, 1, c.Hidden, c.Vocab)
}

// room allocates the activations of n tokens.
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

// resize sets the length of a buffer to n floats of any value.
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

// block runs n tokens through a block: x += proj(attend(turn(qkv(norm1(x))))), then x +=
// mlp(norm2(x)). In a mixture the last term is that of mix.
func (s *Session) block(b *block, k *kept, n int) {
	m, c, live := s.m, s.m.Config.Hidden, s.live
	s.normalise(s.x, b.norm1, n)
	s.ask(b, n)
	m.team.share(m.Config.Keyed(), 1, func(lo, hi int) {
		for head := lo; head < hi; head++ {
			s.keep(k, head, n)
			if m.hashing != nil {
				s.sort(b, k, head, n)
				s.attendWithin(b, k, head, live)
			} else {
				s.attend(k, head, live)
			}
		}
	})
	k.n += n
	if live == 0 {
		return
	}
	x, normed := s.x[:live*c], s.normed[:live*c]
	m.multiply(normed, s.attended[:live*c], b.proj, live, c, c)
	ref.Add(x, x, normed)
	s.normalise(x, b.norm2, live)
	if m.mixture != nil {
		s.mix(b, live)
		return
	}
	s.mlp(normed, normed, b.mlps[0], live)
	ref.Add(x, x, normed)
}

// ask computes the queries, keys and values of n tokens. Tokens that have left get keys and values
// only.
func (s *Session) ask(b *block, n int) {
	m, c, live := s.m, s.m.Config, s.live
	size, all := m.headed()
	if m.shares() {
		resize(&s.made, 2*n*c.Hidden)
		m.multiply(s.made, s.normed, b.qkv, n, c.Hidden, 2*c.Hidden)
		s.turn(s.made, n, c.Heads, 2*c.Hidden)
		ref.ShareKeys(s.qkv, s.made, n, c.Hidden, c.Heads)
		return
	}
	if live > 0 {
		m.multiply(s.qkv[:live*all], s.normed[:live*c.Hidden], b.qkv, live, c.Hidden, all)
	}
	if left, queries := n-live, c.Heads*size; left > 0 {
		rest := linear{weight: b.qkv.weight[queries*c.Hidden:]}
		if b.qkv.bias != nil {
			rest.bias = b.qkv.bias[queries:]
		}
		resize(&s.made, left*(all-queries))
		m.multiply(s.made, s.normed[live*c.Hidden:n*c.Hidden], rest, left, c.Hidden, all-queries)
		for i := range left {
			copy(s.qkv[(live+i)*all+queries:][:all-queries], s.made[i*(all-queries):])
		}
	}
	s.turn(s.qkv, n, c.Heads+c.Keyed(), all)
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

// turn rotates queries and keys of n tokens by their positions: the first `heads` heads of each
// row.
func (s *Session) turn(rows []float32, n, heads, width int) {
	if s.turns != nil {
		size, _ := s.m.headed()
		ref.Rotary(rows, s.at[:n], s.turns, heads, width, size, false)
	}
}

// keep appends the keys and values of n tokens, for a head that has keys.
func (s *Session) keep(k *kept, head, n int) {
	c := s.m.Config
	size, all := s.m.headed()
	for i := range n {
		key := s.qkv[i*all+(c.Heads+head)*size:]
		at := (head*s.positions + k.n + s.slot[i]) * size
		copy(k.keys[at:at+size], key)
		copy(k.values[at:at+size], key[c.Keyed()*size:])
	}
}

// attend computes attended for n tokens, for the heads that share one head's keys and values. With
// s_j = q·k_j/sqrt(size) over the tokens up to itself, it is the mean of the values weighted by
// softmax(s).
func (s *Session) attend(k *kept, keyed, n int) {
	c := s.m.Config
	size, all := s.m.headed()
	first, group := keyed*s.positions*size, c.Heads/c.Keyed()
	scores := make([]float32, k.n+len(s.slot))
	for i := range n {
		p := scores[:k.n+s.slot[i]+1]
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
