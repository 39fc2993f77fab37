package dynamic

// lately is the most steps that a mean is about: those of one are noise.
const lately = 16

// mean is about the mean of the last values.
type mean struct{ value, steps float64 }

func (m *mean) add(x float64) {
	m.steps = min(m.steps+1, lately)
	m.value += (x - m.value) / m.steps
}

// news is how many times more or less is told.
const news = 1.25

// isNews reports whether a share differs from the one that was told by more than news.
func isNews(told, share float64) bool { return share > told*news || told > share*news }
