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
	if m.Llama() {
		return m.attention() + 3*hidden*mlp
	}
	return m.attention() + 2*hidden*mlp
}

// attention returns the weights of a block's matrices before and behind attention.
func (m Model) attention() float64 {
	hidden := float64(m.Hidden)
	return 2 * hidden * hidden * (1 + float64(m.Keyed())/float64(m.Heads))
}

// Inside returns the channels inside an MLP of a block: where there are experts, of each.
func (c Config) Inside() int {
	if c.Dynamic.Has("moe") && c.Moe.Intermediate > 0 {
		return c.Moe.Intermediate
	}
	return c.Model.MLP()
}

// matrices returns the weights of a block's matrices, those of all experts included.
func (c Config) matrices() float64 {
	if !c.Dynamic.Has("moe") {
		return c.Model.matrices()
	}
	hidden := float64(c.Model.Hidden)
	return c.Model.attention() + float64(c.Moe.Experts)*hidden*(3*float64(c.Inside())+1)
}

// assigned returns how many MLPs of a block a token goes to.
func (c Config) assigned() int {
	if c.Dynamic.Has("moe") {
		return c.Moe.Top
	}
	return 1
}
