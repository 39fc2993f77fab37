package dynamic

import (
	"fmt"
	"math"
	"slices"

	"dynmo/src/config"
	"dynmo/src/cost"
)

// Counts describes what layers of a kind count under a name: sums over the microbatches of a
// step, or the counts of one.
type Counts struct {
	Name   string
	Values []string // names of the first values; the values behind them have none
	Charts []Chart
	// Columns returns the cells that a table has of a layer's sums, and their heads; nil: none.
	Columns func(sums Values) (head, row []string)
	Work    func(v Values, tokens float64) Work // a layer's work in a step with the given number of tokens; nil: unknown
}

// Chart shows a number of what layers counted, over steps.
type Chart struct {
	Title, Unit, About string
	FromZero           bool
	Of                 func(v Values, s Step) float64 // NaN: not known
}

// Step is the size of a step.
type Step struct{ Tokens, Microbatches float64 }

// Work is what a layer did.
type Work struct {
	Scores bool    // the share is of the scores of attention; else of the tokens of the step
	Share  float64 // of the dense work; NaN: the layer worked on every token that came to it
	Left   float64 // share of the tokens of the step that leave behind the layer
}

// Values are what a layer counted.
type Values struct {
	Counts
	list []int64
}

// Read returns what a layer counted. Older files have fewer values.
func (c Counts) Read(list []int64) Values { return Values{c, list} }

// Get returns a value by its name, NaN if it is not there.
func (v Values) Get(name string) float64 {
	i := slices.Index(v.Values, name)
	if i < 0 || i >= len(v.list) {
		return math.NaN()
	}
	return float64(v.list[i])
}

// Ratio returns a value over another one, NaN if that is 0 or not there.
func (v Values) Ratio(part, whole string) float64 {
	if v.Get(whole) == 0 {
		return math.NaN()
	}
	return v.Get(part) / v.Get(whole)
}

// Rest returns the values without a name.
func (v Values) Rest() []int64 { return v.list[min(len(v.list), len(v.Values)):] }

// AllCounts returns what layers of any kind count with these settings, in the order of kinds.
func AllCounts(c config.Config) (list []Counts) {
	for _, r := range registrations {
		if r.Counts != nil {
			list = append(list, r.Counts(c)...)
		}
	}
	return list
}

// Find returns the counts of a name.
func Find(list []Counts, name string) (Counts, bool) {
	i := slices.IndexFunc(list, func(c Counts) bool { return c.Name == name })
	if i < 0 {
		return Counts{}, false
	}
	return list[i], true
}

// SumCounts adds up what layers counted in microbatches, ascending by layer and name. all
// describes the counts.
func SumCounts(all []Counts, counts []cost.Count) (list []cost.CountSum) {
	for _, c := range counts {
		one := cost.CountSum{Name: c.Name, Layer: c.Layer, Values: c.Values}
		if slices.ContainsFunc(c.Values, func(v int64) bool { return v != 0 }) {
			one.Microbatches = 1
		}
		if of, ok := Find(all, c.Name); ok && len(c.Values) > len(of.Values) {
			one.Peaks = slices.Max(of.Read(c.Values).Rest())
		}
		list = cost.AddCounts(list, one)
	}
	return list
}

// Seen is what a model was in one step, or lately.
type Seen struct {
	Config         config.Config
	Sparsity       float64 // share of prunable weights that are pruned
	Frozen, Layers int     // layers that are frozen; all of the chain
	Froze          string  // how many layers are frozen, or were
	Scores         float64 // share of the scores of attention that blocks compute, their mean; NaN: unknown
	Tokens         float64 // of the steps
	Counts         []Values
}

// Sum returns the sum of a value over all layers that counted it under a name, NaN if none
// did.
func (s Seen) Sum(name, value string) float64 {
	sum, n := 0.0, 0
	for _, v := range s.Counts {
		if x := v.Get(value); v.Name == name && !math.IsNaN(x) {
			sum, n = sum+x, n+1
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum
}

// Significant writes a number with three digits, or all those before the point.
func Significant(x float64) string {
	switch abs := math.Abs(x); {
	case abs >= 1e6 || abs < 1e-3 && abs > 0:
		return fmt.Sprintf("%.3g", x)
	case abs >= 100:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// Large writes a number in thousands, millions or more where it is that large.
func Large(x float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if math.Abs(x) >= unit.size {
			return Significant(x/unit.size) + unit.name
		}
	}
	return Significant(x)
}

// Percent writes a share in per cent.
func Percent(share float64) string { return Significant(100*share) + " %" }
