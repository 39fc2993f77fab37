package report

import (
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is a chart of numbers over steps. Its picture has only lines and is stretched to the
// available width. The text beside it belongs to the page and keeps its size.
type chart struct {
	Title    string        `json:"title"`
	Unit     string        `json:"unit"`
	About    string        `json:"-"` // explanation of the number
	Curves   []*curve      `json:"curves"`
	Exact    bool          `json:"exact"` // the page reports a number only near its own step
	FromZero bool          `json:"-"`     // the axis begins at 0
	Log      bool          `json:"-"`     // the axis is logarithmic: only numbers above 0 are drawn
	Top      float64       `json:"-"`     // end of the axis; 0: at the largest number
	Above    string        `json:"-"`     // description of the numbers above Top; "" if there are none
	SVG      template.HTML `json:"-"`     // "" if no curve has a point
	X        []tick        `json:"-"`
	Y        []tick        `json:"-"`
}

// curve is one line of a chart. Style is its CSS class on the page.
type curve struct {
	Name    string    `json:"name"`
	Style   string    `json:"-"`
	X       []float64 `json:"x"` // drawn points: at most maxPoints, finite
	Y       []float64 `json:"y"`
	Held    bool      `json:"held"` // a number stays valid until the next one
	Breaks  []int     `json:"-"`    // indices of points before which steps are missing
	Missing int       `json:"-"`    // number of steps whose number is not finite
}

// maxPoints is about twice the pixels of a chart's width.
const maxPoints = 1000

// thin sets X and Y from x and y, with at most maxPoints points. Of every group of consecutive
// steps it keeps the smallest and the largest number, in order, so that no spike is lost. Numbers
// that are not finite are counted and left out.
func (c *curve) thin(x, y []float64) {
	size := 1
	if len(x) > maxPoints {
		size = (2*len(x) + maxPoints - 1) / maxPoints
	}
	for begin := 0; begin < len(x); begin += size {
		low, high, before := -1, -1, c.Missing
		for i := begin; i < min(begin+size, len(x)); i++ {
			if math.IsNaN(y[i]) || math.IsInf(y[i], 0) {
				c.Missing++
				continue
			}
			if low < 0 || y[i] < y[low] {
				low = i
			}
			if high < 0 || y[i] > y[high] {
				high = i
			}
		}
		if c.Missing > before {
			c.Breaks = append(c.Breaks, len(c.X))
		}
		if low < 0 {
			continue
		}
		first, second := min(low, high), max(low, high)
		c.X, c.Y = append(c.X, x[first]), append(c.Y, y[first])
		if second > first {
			c.X, c.Y = append(c.X, x[second]), append(c.Y, y[second])
		}
	}
}

// styles are the line styles of curves, by class. Their colours are placeholders for the colours of
// the page, which follow the reader's theme.
var styles = map[string]draw.LineStyle{
	"line":   {Color: color.RGBA{3, 3, 3, 255}, Width: 1.5},
	"static": {Color: color.RGBA{7, 7, 7, 255}, Width: 2, Dashes: []vg.Length{7, 4}},
	"best":   {Color: color.RGBA{8, 8, 8, 255}, Width: 2, Dashes: []vg.Length{2, 3}},

	"validation": {Color: color.RGBA{9, 9, 9, 255}, Width: 2.5},

	"layer0": {Color: color.RGBA{16, 16, 16, 255}, Width: 1.5},
	"layer1": {Color: color.RGBA{17, 17, 17, 255}, Width: 1.5},
	"layer2": {Color: color.RGBA{18, 18, 18, 255}, Width: 1.5},
	"layer3": {Color: color.RGBA{19, 19, 19, 255}, Width: 1.5},
	"layer4": {Color: color.RGBA{20, 20, 20, 255}, Width: 1.5},
	"layer5": {Color: color.RGBA{21, 21, 21, 255}, Width: 1.5},
	"layer6": {Color: color.RGBA{22, 22, 22, 255}, Width: 1.5},
	"layer7": {Color: color.RGBA{23, 23, 23, 255}, Width: 1.5},
}

var themed = strings.NewReplacer("#030303", "var(--line)", "#070707", "var(--static)", "#080808", "var(--best)", "#090909", "var(--validation)",
	"#040404", "var(--dynamic)", "#050505", "var(--migrate)", "#060606", "var(--balance)", "#181818", "var(--repack)", "#191919", "var(--release)",
	"#101010", "var(--layer0)", "#111111", "var(--layer1)", "#121212", "var(--layer2)", "#131313", "var(--layer3)",
	"#141414", "var(--layer4)", "#151515", "var(--layer5)", "#161616", "var(--layer6)", "#171717", "var(--layer7)")

// Size of a picture in its own units; the page stretches it.
const chartWidth, chartHeight = 1000, 300

// above returns an end for an axis that begins at low. It is far enough from low that the two
// differ in floating point.
func above(low float64) float64 { return low + max(1, 1e-9*math.Abs(low)) }

// draw sets the chart's picture, with marks over the steps from..to.
func (c *chart) draw(from, to float64, marks []mark) error {
	p := plot.New()
	p.BackgroundColor = nil
	p.HideAxes()
	p.X.Padding, p.Y.Padding = 0, 0
	if c.Log {
		p.Y.Scale = plot.LogScale{}
	}
	p.Add(marked(marks))
	drawn := false
	for i := len(c.Curves) - 1; i >= 0; i-- { // the first curve is drawn last, on top
		if err := c.Curves[i].draw(p, to); err != nil {
			return fmt.Errorf("chart %q: %w", c.Title, err)
		}
		drawn = drawn || len(c.Curves[i].X) > 0
	}
	if !drawn {
		return nil
	}
	p.X.Min, p.X.Max = from, to
	if c.FromZero {
		p.Y.Min = min(p.Y.Min, 0)
	}
	if c.Top > 0 {
		p.Y.Max = c.Top
	}
	if p.Y.Max <= p.Y.Min && !c.Log {
		p.Y.Max = above(p.Y.Min)
	}
	c.X, c.Y = nil, nil
	for _, t := range (ticks{most: 6, least: 1}).Ticks(from, to) {
		c.X = append(c.X, tick{percent(t.Value-from, to-from), t.Label})
	}
	if c.Log {
		c.Y = decades(&p.Y)
	} else {
		for _, t := range (ticks{most: 5}).Ticks(p.Y.Min, p.Y.Max) {
			c.Y = append(c.Y, tick{percent(p.Y.Max-t.Value, p.Y.Max-p.Y.Min), t.Label})
		}
	}
	svg := vgsvg.New(chartWidth, chartHeight)
	p.Draw(draw.New(svg))
	var b strings.Builder
	if _, err := svg.WriteTo(&b); err != nil {
		return fmt.Errorf("chart %q: %w", c.Title, err)
	}
	_, body, _ := strings.Cut(b.String(), "<g ")
	head := fmt.Sprintf(`<svg viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s over steps"><g `, chartWidth, chartHeight, c.Title)
	c.SVG = template.HTML(head + themed.Replace(body))
	return nil
}

// draw adds the curve to a plot, with a separate line for each part between Breaks. A held curve
// continues to the last step.
func (c *curve) draw(p *plot.Plot, to float64) error {
	x, y := c.X, c.Y
	if n := len(x); c.Held && n > 0 {
		x, y = append(slices.Clone(x), max(to, x[n-1])), append(slices.Clone(y), y[n-1])
	}
	begin := 0
	for _, end := range append(slices.Clone(c.Breaks), len(x)) {
		if end == begin {
			continue
		}
		line, err := plotter.NewLine(points{x[begin:end], y[begin:end]})
		if err != nil {
			return err
		}
		line.LineStyle = styles[c.Style]
		if c.Held {
			line.StepStyle = plotter.PostStep
		}
		p.Add(line)
		begin = end
	}
	return nil
}

// decades widens a logarithmic axis to powers of ten and marks these, at most about six.
func decades(axis *plot.Axis) (list []tick) {
	low, high := int(math.Floor(math.Log10(axis.Min))), int(math.Ceil(math.Log10(axis.Max)))
	high = max(high, low+1)
	axis.Min, axis.Max = math.Pow10(low), math.Pow10(high)
	for k := low; k <= high; k += (high - low + 5) / 6 {
		list = append(list, tick{percent(float64(high-k), float64(high-low)), fmt.Sprintf("1e%d", k)})
	}
	return list
}

// percent formats a share of the width or height of a picture.
func percent(x, of float64) string { return fmt.Sprintf("%.4g%%", 100*x/of) }

// ticks marks an axis at multiples of 1, 2 or 5 times a power of ten.
type ticks struct {
	most  float64 // approximate number of marks
	least float64 // smallest distance of two marks
}

// Ticks returns the marks of an axis from low to high. A mark with the same label as the one before
// is left out. There are no marks if the range is empty, infinite or too small to divide.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	wanted := (high - low) / t.most
	if math.IsInf(wanted, 0) {
		return nil
	}
	ten := math.Pow(10, math.Floor(math.Log10(wanted)))
	by := 10 * ten
	for _, f := range []float64{5, 2, 1} {
		if f*ten >= wanted {
			by = f * ten
		}
	}
	by = max(by, t.least)
	first := math.Ceil(low / by)
	var list []plot.Tick
	for k := 0.0; k <= t.most; k++ { // first+k may equal first if floats are coarse
		value := (first + k) * by
		label := strconv.FormatFloat(value, 'g', 6, 64)
		if !(value >= low && value <= high) || len(list) > 0 && list[len(list)-1].Label == label {
			continue
		}
		list = append(list, plot.Tick{Value: value, Label: label})
	}
	return list
}

// points is a plotter.XYer.
type points struct{ x, y []float64 }

// farthest is the largest distance from 0 at which points are drawn. Ranges up to it can be
// divided.
const farthest = 1e300

func (p points) Len() int { return len(p.x) }
func (p points) XY(i int) (float64, float64) {
	return p.x[i], max(-farthest, min(p.y[i], farthest))
}

// marked draws marks as vertical lines, with a colour and dashes for each kind. If a kind has so
// many lines that they would hide the curve, its lines are short.
type marked []mark

func (m marked) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	count := map[string]int{}
	for _, mark := range m {
		count[mark.Kind]++
	}
	for _, mark := range m {
		foot := c.Min.Y
		if count[mark.Kind] > 40 {
			foot = c.Max.Y - 24
		}
		c.StrokeLine2(markStyles[mark.Kind], x(mark.Step), foot, x(mark.Step), c.Max.Y)
	}
}

var markStyles = map[string]draw.LineStyle{
	"dynamic": {Color: color.RGBA{4, 4, 4, 255}, Width: 1},
	"migrate": {Color: color.RGBA{5, 5, 5, 255}, Width: 1, Dashes: []vg.Length{5, 2.5}},
	"balance": {Color: color.RGBA{6, 6, 6, 255}, Width: 1, Dashes: []vg.Length{1, 2.5}},
	"repack":  {Color: color.RGBA{24, 24, 24, 255}, Width: 1.5},
	"release": {Color: color.RGBA{25, 25, 25, 255}, Width: 1.5, Dashes: []vg.Length{5, 2.5}},
}
