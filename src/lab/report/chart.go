package report

import (
	"math"
	"slices"

	"dynmo/src/record"
)

// chart is a chart of numbers over steps. The page's script draws it.
type chart struct {
	Title    string  `json:"title"`
	Unit     string  `json:"unit"`
	About    string  `json:"-"`     // explanation of the number
	Steps    []int   `json:"steps"` // ascending
	Curves   []curve `json:"curves"`
	FromZero bool    `json:"zero"` // the axis begins at 0
	Log      bool    `json:"log"`  // the axis is logarithmic: numbers are above 0
	Top      float64 `json:"top"`  // end of the axis; 0: at the largest number
	Above    string  `json:"-"`    // description of the numbers above Top; "" if there are none
	Index    int     `json:"-"`    // on the page
	Missing  int     `json:"-"`    // number of steps at which the first curve has a gap
}

// curve is one line of a chart. Style is the name of its colour on the page.
type curve struct {
	Name   string         `json:"name"`
	Style  string         `json:"style"`
	Y      []record.Float `json:"y"`      // by step of the chart; null: a gap
	Held   bool           `json:"held"`   // a number stays valid until the next one
	Sparse bool           `json:"sparse"` // measured only after some steps: gaps are bridged
}

// chart returns a chart of curves over all steps of the run, from 0 on.
func (r Run) chart(title, unit, about string, curves ...curve) *chart {
	c := &chart{Title: title, Unit: unit, About: about, Curves: curves, FromZero: true}
	for i, m := range r.Metrics {
		c.Steps = append(c.Steps, m.Step)
		if !finite(curves[0].Y[i]) {
			c.Missing++
		}
	}
	return c
}

// curve returns the curve of a number that every step has.
func (r Run) curve(name, style string, of func(record.Metrics) record.Float) curve {
	n := curve{Name: name, Style: style}
	for _, m := range r.Metrics {
		n.Y = append(n.Y, of(m))
	}
	return n
}

// gaps returns a curve's numbers before any is known.
func gaps(steps int) []record.Float {
	return slices.Repeat([]record.Float{record.Float(math.NaN())}, steps)
}

func finite(y record.Float) bool { return !math.IsNaN(float64(y)) && !math.IsInf(float64(y), 0) }

// Drawn reports whether there is any number to draw.
func (c *chart) Drawn() bool {
	return slices.ContainsFunc(c.Curves, func(n curve) bool { return slices.ContainsFunc(n.Y, finite) })
}

// maxPoints is about twice the pixels of a chart's width.
const maxPoints = 1000

// thin leaves about maxPoints steps. Of every group of consecutive steps it keeps the smallest and
// the largest number of each curve, so that no spike is lost, and a gap.
func (c *chart) thin() {
	size := 2 * len(c.Curves) * len(c.Steps) / maxPoints
	if size < 2 {
		return
	}
	keep := make([]bool, len(c.Steps))
	for _, n := range c.Curves {
		for begin := 0; begin < len(c.Steps); begin += size {
			low, high, gap := -1, -1, -1
			for i := begin; i < min(begin+size, len(c.Steps)); i++ {
				if !finite(n.Y[i]) {
					gap = i
					continue
				}
				if low < 0 || n.Y[i] < n.Y[low] {
					low = i
				}
				if high < 0 || n.Y[i] > n.Y[high] {
					high = i
				}
			}
			if n.Sparse {
				gap = -1
			}
			for _, i := range []int{low, high, gap} {
				if i >= 0 {
					keep[i] = true
				}
			}
		}
	}
	c.Steps = kept(c.Steps, keep)
	for i := range c.Curves {
		c.Curves[i].Y = kept(c.Curves[i].Y, keep)
	}
}

// kept returns the elements of a list that are to be kept.
func kept[T any](list []T, keep []bool) (short []T) {
	for i, x := range list {
		if keep[i] {
			short = append(short, x)
		}
	}
	return short
}
