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

// matrices returns the weights of a block's matrices.
func (m Model) matrices() float64 {
	hidden, mlp := float64(m.Hidden), float64(m.MLP())
	attention := 2 * hidden * hidden * (1 + float64(m.Keyed())/float64(m.Heads))
	if m.Llama() {
		return attention + 3*hidden*mlp
	}
	return attention + 2*hidden*mlp
}
