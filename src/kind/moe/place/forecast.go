package place

import "math"

// Forecast says how many rows the experts of a layer will have, from the steps so far. The
// zero value has seen none.
//
// The forecast is the mean of the last steps, at most window of them. An expert whose rows
// surely rise or fall is taken to go on as a straight line does. Steps before a jump do not
// count: a jump is a step whose rows lie much further off the mean of those before it than steps
// did lately, as where another expert has become the hot one.
type Forecast struct {
	Rows   []float64 // by expert: rows of the next step
	Spread []float64 // by expert: the standard deviation of its rows between steps, as a share of them

	steps [][]float64 // by step, the newest last: rows by expert
	usual float64     // how far steps lie off the mean of those before, lately (see distance)
}

const (
	// window is how many steps the mean is of. Routing of trained models changes over
	// hundreds of steps; noise falls with the root of the window.
	window = 8
	// jump is how many times further off than usual a step after a jump is, and leastJump how
	// far at least, as a share of all rows.
	jump, leastJump = 4, 0.05
	// sureTrend is how many standard errors the slope of a trend is from 0 at least.
	sureTrend = 3
	// lately is the weight of the newest distance in the usual one.
	lately = 0.25
)

// Observe takes the rows of a step by expert.
func (f *Forecast) Observe(rows []int64) {
	var now []float64
	if len(f.steps) >= window || len(f.steps) > 0 && len(f.steps[0]) != len(rows) {
		now, f.steps = f.steps[0], f.steps[1:]
	}
	if len(now) != len(rows) {
		now = make([]float64, len(rows))
	}
	for e, n := range rows {
		now[e] = float64(n)
	}
	if len(f.Rows) != len(rows) {
		*f = Forecast{Rows: make([]float64, len(rows)), Spread: make([]float64, len(rows))}
	}
	if len(f.steps) > 0 {
		off := distance(now, f.Rows)
		if len(f.steps) > 1 && off > max(leastJump, jump*f.usual) {
			f.steps = f.steps[:0]
		} else {
			f.usual += lately * (off - f.usual)
		}
	}
	f.steps = append(f.steps, now)
	for e := range rows {
		f.Rows[e], f.Spread[e] = f.expert(e)
		f.Spread[e] /= max(1, f.Rows[e])
	}
}

// distance returns the share of the rows that are with other experts in one step than in
// another: half of Σ |x_e/Σx - y_e/Σy|.
func distance(x, y []float64) float64 {
	var a, b, sum float64
	for e := range x {
		a, b = a+x[e], b+y[e]
	}
	if a == 0 || b == 0 {
		return 0
	}
	for e := range x {
		sum += math.Abs(x[e]/a-y[e]/b) / 2
	}
	return sum
}

// expert returns the rows of an expert in the next step, and their deviation. With the
// steps t = 0, 1, …, n-1 about their middle c, the mean μ and the slope β = Σ(t-c)(x-μ)/Σ(t-c)²
// of the rows x, that is μ + β·(n-c) if β is surely not 0, else μ.
func (f *Forecast) expert(e int) (rows, spread float64) {
	n := float64(len(f.steps))
	mean := 0.0
	for _, s := range f.steps {
		mean += s[e] / n
	}
	centre, slope, squares, times := (n-1)/2, 0.0, 0.0, 0.0
	for t, s := range f.steps {
		off, x := float64(t)-centre, s[e]-mean
		slope, squares, times = slope+off*x, squares+x*x, times+off*off
	}
	if n < 2 {
		return mean, 0
	}
	slope /= times
	rest := max(0, squares-slope*slope*times)
	if n >= window/2 && math.Abs(slope) > sureTrend*math.Sqrt(rest/(n-2)/times) {
		return max(0, mean+slope*(n-centre)), math.Sqrt(rest / (n - 2))
	}
	return mean, math.Sqrt(squares / (n - 1))
}
