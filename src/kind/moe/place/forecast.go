package place

import "math"

// Forecast predicts the rows of the experts of a layer from the steps so far. The zero value has
// seen none.
//
// The forecast is the mean of the last steps, at most window of them. Rows of an expert that surely
// rise or fall are assumed to continue on a straight line. Steps before a jump do not count. A jump
// is a step whose rows are much further from the mean than those of recent steps. It happens when
// another expert becomes the hot one.
type Forecast struct {
	Rows   []float64 // by expert: rows of the next step
	Spread []float64 // by expert: the standard deviation of its rows between steps, as a share of them

	steps [][]int64 // by step, the newest last: rows by expert
	sums  []sums    // by expert
	usual float64   // how far steps lie off the mean of those before, lately (see distance)
}

// sums are over the steps t = 0, 1, … of the rows x of an expert: Σx, Σt·x and Σx². They are exact
// up to a thousand million rows of an expert in a step.
type sums struct{ rows, moment, squares int64 }

const (
	// window is how many steps the mean is of. Routing of trained models changes over
	// hundreds of steps; noise falls with the root of the window.
	window = 8
	// jump is the factor by which a jump's distance from the mean exceeds the usual one. leastJump
	// is the least distance of a jump, as a share of all rows.
	jump, leastJump = 4, 0.05
	// sureTrend is how many standard errors the slope of a trend is from 0 at least.
	sureTrend = 3
	// lately is the weight of the newest distance in the usual one.
	lately = 0.25
)

// Observe takes the rows of a step by expert.
func (f *Forecast) Observe(rows []int64) {
	if len(f.Rows) != len(rows) {
		*f = Forecast{Rows: make([]float64, len(rows)), Spread: make([]float64, len(rows)), sums: make([]sums, len(rows))}
	}
	if len(f.steps) > 0 {
		off := distance(rows, f.Rows)
		if len(f.steps) > 1 && off > max(leastJump, jump*f.usual) {
			f.steps = f.steps[:0]
			clear(f.sums)
		} else {
			f.usual += lately * (off - f.usual)
		}
	}
	var newest []int64 // the memory of the oldest step
	if len(f.steps) == window {
		newest, f.steps = f.steps[0], f.steps[1:]
		for e, x := range newest {
			s := &f.sums[e]
			s.rows, s.squares = s.rows-x, s.squares-x*x
			s.moment -= s.rows
		}
	}
	t := int64(len(f.steps))
	for e, x := range rows {
		s := &f.sums[e]
		s.rows, s.moment, s.squares = s.rows+x, s.moment+t*x, s.squares+x*x
	}
	f.steps = append(f.steps, append(newest[:0], rows...))
	f.expect()
}

// distance returns the share of the rows that are with other experts in one step than in
// another: half of Σ |x_e/Σx - y_e/Σy|.
func distance(x []int64, y []float64) float64 {
	var a, b, sum float64
	for e := range x {
		a, b = a+float64(x[e]), b+y[e]
	}
	if a == 0 || b == 0 {
		return 0
	}
	for e := range x {
		sum += math.Abs(float64(x[e])/a-y[e]/b) / 2
	}
	return sum
}

// expect sets Rows and Spread. Steps are t = 0, 1, …, n-1 with the middle c. The rows x of an
// expert have the mean μ and the slope β = Σ(t-c)x/Σ(t-c)². The next step has μ + β·(n-c) rows if β
// is surely not 0, else μ.
func (f *Forecast) expect() {
	n := float64(len(f.steps))
	centre := (n - 1) / 2
	times := n * (n*n - 1) / 12
	each := 1 / n
	for e, s := range f.sums {
		mean := float64(s.rows) * each
		f.Rows[e] = mean
		if f.Spread[e] = 0; n < 2 {
			continue
		}
		all, slope := max(0, float64(s.squares)-mean*float64(s.rows)), float64(s.moment)-centre*float64(s.rows)
		beta := slope / times
		rest, freedom := max(0, all-beta*slope), n-2
		if n >= window/2 && beta*beta*freedom*times > sureTrend*sureTrend*rest {
			f.Rows[e] = max(0, mean+beta*(n-centre))
		} else {
			rest, freedom = all, n-1
		}
		f.Spread[e] = math.Sqrt(rest/freedom) / max(1, f.Rows[e])
	}
}
