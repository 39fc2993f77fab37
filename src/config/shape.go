package config

// Llama reports whether the model is of the LLaMA family (Touvron et al. 2023).
func (m Model) Llama() bool { return m.Family == "llama" }

// Keyed returns how many heads have keys and values.
func (m Model) Keyed() int {
	if m.Llama() && m.KeyValueHeads > 0 {
		return m.KeyValueHeads
	}
	return m.Heads
}

// MLP returns the channels inside the MLP.
func (m Model) MLP() int {
	switch {
	case !m.Llama():
		return 4 * m.Hidden
	case m.Intermediate > 0:
		return m.Intermediate
	}
	return (8*m.Hidden + 95) / 96 * 32
}

// Inside returns the channels inside an MLP of a block: where there are several, of each.
func (c Config) Inside() int { return c.shape().Inside }

// Matrices returns the weights of a block's matrices that a token is multiplied with: in
// attention, and in the MLPs that it goes through, with what chooses them.
func (c Config) Matrices() (attention, mlp float64) { return c.matrices(c.shape().Taken) }

// matrices is Matrices of a token that goes through so many MLPs.
func (c Config) matrices(mlps int) (attention, mlp float64) {
	m, s := c.Model, c.shape()
	hidden, factors := float64(m.Hidden), 2.0
	if m.Llama() {
		factors = 3 // gate, up and down
	}
	attention = 2 * hidden * hidden * (1 + float64(m.Keyed())/float64(m.Heads))
	return attention, float64(mlps)*factors*hidden*float64(s.Inside) + s.Router
}
