package dynamic

// lately is the most steps that a mean is about: those of one are noise.
const lately = 16

// Mean is about the mean of the last values.
type Mean struct{ Value, steps float64 }

// Add adds a value.
func (m *Mean) Add(x float64) {
	m.steps = min(m.steps+1, lately)
	m.Value += (x - m.Value) / m.steps
}

// news is how many times more or less is told.
const news = 1.25

// IsNews reports whether a share differs from the one that was told by more than news.
func IsNews(told, share float64) bool { return share > told*news || told > share*news }
