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

// Inside returns the channels inside an MLP of a block: where there are experts, of each.
func (c Config) Inside() int {
	if c.Dynamic.Has("moe") && c.Moe.Intermediate > 0 {
		return c.Moe.Intermediate
	}
	return c.Model.MLP()
}

// Spread reports whether experts are spread over replicas, of which there are several.
func (c Config) Spread() bool {
	return c.Dynamic.Has("moe") && c.Parallel.Experts == "spread" && c.Parallel.Replicas > 1
}

// assigned returns how many MLPs of a block a token goes to.
func (c Config) assigned() int {
	if c.Dynamic.Has("moe") {
		return c.Moe.Top
	}
	return 1
}

// Matrices returns the weights of a block's matrices that a token is multiplied with: in
// attention, and in the MLP or the experts that it goes to, with their router.
func (c Config) Matrices() (attention, mlp float64) {
	m := c.Model
	hidden, factors, router := float64(m.Hidden), 2.0, 0.0
	if m.Llama() {
		factors = 3 // gate, up and down
	}
	if c.Dynamic.Has("moe") {
		router = hidden * float64(c.Moe.Experts)
		if c.Moe.Router == "mlp" {
			router += float64(c.Moe.Experts * c.Moe.Experts)
		}
	}
	attention = 2 * hidden * hidden * (1 + float64(m.Keyed())/float64(m.Heads))
	return attention, float64(c.assigned())*factors*hidden*float64(c.Inside()) + router
}

// matrices returns the weights of a block's matrices, those of all experts included.
func (c Config) matrices() float64 {
	if c.Dynamic.Has("moe") {
		c.Moe.Top = c.Moe.Experts
	}
	attention, mlp := c.Matrices()
	return attention + mlp
}
