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

// Inside returns the channels inside an MLP of a block: where there are experts, of each.
func (c Config) Inside() int {
	if c.Dynamic.Has("moe") && c.Moe.Intermediate > 0 {
		return c.Moe.Intermediate
	}
	return c.Model.MLP()
}

// Multiplied returns the weights that a token is multiplied with in a block, in attention
// and in the MLP or the experts that it goes to.
func (c Config) Multiplied() (attention, mlp float64) {
	attention, mlp = c.block().Matrices()
	_, taken := c.mlps()
	return attention, taken * mlp
}

// block returns the model with one expert in place of all.
func (c Config) block() Model {
	m := c.Model
	m.Intermediate = c.Inside()
	return m
}

// mlps returns how many MLPs a block has, and to how many of these a token goes.
func (c Config) mlps() (all, taken float64) {
	if c.Dynamic.Has("moe") {
		return float64(c.Moe.Experts), float64(c.Moe.Top)
	}
	return 1, 1
}
