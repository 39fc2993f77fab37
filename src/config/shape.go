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

// Matrices returns the weights of a block's matrices, in attention and in the MLP: as many
// are a token's multiplications with them.
func (m Model) Matrices() (attention, mlp float64) {
	hidden, factors := float64(m.Hidden), 2.0
	if m.Llama() {
		factors = 3 // gate, up and down
	}
	return 2 * hidden * hidden * (1 + float64(m.Keyed())/float64(m.Heads)), factors * hidden * float64(m.MLP())
}
