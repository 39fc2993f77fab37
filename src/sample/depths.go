package sample

import (
	"slices"

	"dynmo/src/model"
)

// routing is an extension of a model in which some blocks compute only some of the tokens. It
// decides on each token alone, because later tokens are not known.
type routing interface {
	model.Extension
	// Routes reports whether a block computes only some of the tokens.
	Routes(block int) bool
	// Takes reports whether a block computes a token, from the logit of its router and the guess of
	// its predictor. gate is the weight of the block's output for the token.
	Takes(logit, guess float64) (taken bool, gate float64)
	// Notes describes how blocks chose tokens differently in training.
	Notes() []string
}

// route runs n tokens through a block: x = (1-g)·x + g·block(x) for the tokens that the block
// takes. The other tokens get no keys and values for later tokens. Tokens that have left are chosen
// in the same way, by their states. The chosen ones get keys and values only.
func (s *Session) route(b *block, k *kept, n int) {
	m, c := s.m, s.m.Config.Hidden
	logits, guesses := make([]float32, n), make([]float32, n)
	m.multiply(logits, s.x, b.depths, n, c, 1)
	if b.up.weight != nil {
		width := len(b.up.bias)
		pre, active := make([]float32, n*width), make([]float32, n*width)
		m.multiply(pre, s.x, b.up, n, c, width)
		m.gelu(active, pre)
		m.multiply(guesses, active, b.down, n, width, 1)
	}
	var rows, slots []int
	var at []int32
	var gates, inp []float32
	all, live := slices.Clone(s.x), 0 // live: number of taken tokens that are computed
	for i := range n {
		taken, gate := m.routing.Takes(float64(logits[i]), float64(guesses[i]))
		if !taken {
			continue
		}
		rows, gates, at, slots = append(rows, i), append(gates, float32(gate)), append(at, s.at[i]), append(slots, s.slot[i])
		inp = append(inp, all[i*c:][:c]...)
		if i < s.live {
			live++
		}
	}
	if !slices.Contains(slots[:live], n-1) && slices.Contains(s.slot[:s.live], n-1) {
		s.depth--
	}
	if len(rows) == 0 {
		return
	}
	ascending := slices.Sorted(slices.Values(slots))
	for i, slot := range slots {
		slots[i], _ = slices.BinarySearch(ascending, slot)
	}
	before := *s
	s.at, s.slot, s.live = at, slots, live
	s.room(len(rows))
	copy(s.x, inp)
	s.block(b, k, len(rows))
	for i, row := range rows[:live] {
		out := all[row*c:][:c]
		for j, y := range s.x[i*c:][:c] {
			out[j] = (1-gates[i])*out[j] + gates[i]*y
		}
	}
	s.at, s.slot, s.live = before.at, before.slot, before.live
	s.room(n)
	copy(s.x, all)
}
