package figures

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// bars draws groups of bars. Each bar and each of the paper's marks has a place of its own in the
// group. Points of executed runs and ceilings stand upon the bars.
type bars struct{ Panel }

// A bar is barWidth wide, or as wide that a group's bars and marks take groupWidth of its width.
const (
	barWidth   = 14
	groupWidth = 0.88
	namesGap   = 2 // between bars and the names of groups
)

// isBar reports whether the series is drawn as bars.
func (s Series) isBar() bool { return s.Role == roleOurs || s.Role == roleStatic }

// places returns the place of every series in a group: bars first, then the paper's marks. A point of
// an executed run has the place of its bar. A ceiling goes over all bars.
func (p Panel) places() (list []int, bars, all int) {
	for _, s := range p.Series {
		if s.isBar() {
			bars++
		}
	}
	list = make([]int, len(p.Series))
	bar, executed, all := 0, 0, bars
	for i, s := range p.Series {
		next := &bar
		switch s.Role {
		case rolePaper:
			next = &all
		case roleExecuted:
			next = &executed
		case roleCeiling:
			continue
		}
		list[i] = *next
		*next++
	}
	return list, bars, all
}

// names returns the names of groups, and the height of the axis that they need. They have lines
// that fit the groups, and stand upright where a word does not fit.
func (p Panel) names() (names []string, high vg.Length, upright bool) {
	style, room := textStyle(smallSize), plotWidth/vg.Length(max(1, len(p.Groups)))-2
	most := 1
	for _, name := range p.Groups {
		lines := wrap(name, style, room)
		names, most, high = append(names, strings.Join(lines, "\n")), max(most, len(lines)), max(high, style.Width(name))
		upright = upright || slices.ContainsFunc(lines, func(l string) bool { return style.Width(l) > room })
	}
	if upright {
		for i, name := range p.Groups {
			names[i] = name + " " // plot.Plot puts upright text too near to the axis
		}
		return names, high, true
	}
	for i, name := range names { // plot.Plot puts texts of different heights at different heights
		names[i] += strings.Repeat("\n ", most-1-strings.Count(name, "\n"))
	}
	return names, style.Height(strings.Repeat("\n ", most-1) + "X"), false
}

// addBars adds the panel's bars to a diagram whose vertical axis ends at top.
func (p Panel) addBars(d *plot.Plot, top float64) {
	d.Add(bars{p})
	names, _, upright := p.names()
	d.NominalX(names...)
	d.X.Tick.Label.Font.Size = smallSize
	if upright {
		d.X.Tick.Label.Rotation, d.X.Tick.Label.XAlign, d.X.Tick.Label.YAlign = math.Pi/2, draw.XRight, draw.YCenter
	}
	d.X.Min, d.X.Max, d.Y.Min, d.Y.Max = -0.5, float64(len(p.Groups))-0.5, 0, top
}

// numbers returns how high the numbers above bars are, 0 if bars are too narrow for numbers. They
// stand upright where bars are narrower than a number.
func (p Panel) numbers() (high vg.Length, upright bool) {
	style := textStyle(smallSize)
	_, _, places := p.places()
	room := min(barWidth, plotWidth*groupWidth/vg.Length(max(1, len(p.Groups)*places)))
	longest := vg.Length(0)
	for _, s := range p.Series {
		for _, v := range s.Values {
			if s.isBar() && !math.IsNaN(v) {
				longest = max(longest, style.Width(digits(v)))
			}
		}
	}
	switch {
	case longest+1.5 < room:
		return smallSize, false
	case room > 0.8*smallSize: // digits are lower than the letters of their size
		return longest, true
	}
	return 0, false
}

// digits writes the number above a bar.
func digits(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.001:
		return "<0.001"
	case v < 0.1:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return padded(v)
}

// top returns the upper end of an axis on which all marks of the panel have room, with the numbers
// above them.
func (p Panel) top() float64 {
	numbers, _ := p.numbers()
	most := 0.0
	for _, s := range p.Series {
		above := numbers + 2*pointRadius
		if s.Role == rolePaper {
			above = diamondRadius + 1
		}
		for i, v := range s.Values {
			if len(s.High) > 0 {
				v = s.High[i]
			}
			if !math.IsNaN(v) {
				most = max(most, v*float64(plotHeight/(plotHeight-above)))
			}
		}
	}
	return most
}

// Plot implements plot.Plotter.
func (b bars) Plot(c draw.Canvas, d *plot.Plot) {
	_, y := d.Transforms(&c)
	c.StrokeLine2(line, c.Min.X, y(0), c.Max.X, y(0))
	for g := range b.Groups {
		b.plotGroup(c, d, g)
	}
}

// plotGroup draws a group: its bars, then the marks upon them, then numbers.
func (b bars) plotGroup(c draw.Canvas, d *plot.Plot, g int) {
	x, y := d.Transforms(&c)
	looks := b.looks()
	places, bars, all := b.places()
	wide := min(barWidth, (x(groupWidth)-x(0))/vg.Length(all))
	left := func(place int) vg.Length { return x(float64(g)) + wide*(vg.Length(place)-vg.Length(all)/2) }
	crossing := make([][]mark, bars) // what may cross the number of each bar
	for i, s := range b.Series {
		v, k := s.Values[g], places[i]
		if math.IsNaN(v) || !s.isBar() {
			continue
		}
		looks[i].box(c, vg.Rectangle{Min: vg.Point{X: left(k), Y: y(0)}, Max: vg.Point{X: left(k + 1), Y: y(v)}})
		if len(s.Low) == 0 || s.High[g] <= s.Low[g] {
			continue
		}
		low, high, middle := y(s.Low[g]), y(s.High[g]), (left(k)+left(k+1))/2
		c.StrokeLine2(line, middle, low, middle, high)
		c.StrokeLine2(line, middle-1.5, low, middle+1.5, low)
		c.StrokeLine2(line, middle-1.5, high, middle+1.5, high)
		crossing[k] = append(crossing[k], mark{low, high})
	}
	for i, s := range b.Series {
		v, k := s.Values[g], places[i]
		at := vg.Point{X: (left(k) + left(k+1)) / 2, Y: y(v)}
		switch {
		case math.IsNaN(v):
		case s.Role == rolePaper:
			looks[i].glyph.DrawGlyph(&c, draw.GlyphStyle{}, at)
		case s.Role == roleExecuted:
			drawPoint(c, at)
			crossing[k] = append(crossing[k], mark{at.Y - pointRadius, at.Y + pointRadius})
		case s.Role == roleCeiling:
			c.StrokeLine2(ceilingLine, left(0), at.Y, left(bars), at.Y)
			for k := range crossing {
				crossing[k] = append(crossing[k], mark{at.Y - 1, at.Y + 1})
			}
		}
	}
	high, upright := b.numbers()
	if high == 0 {
		return
	}
	style := textStyle(smallSize)
	style.XAlign = draw.XCenter
	if upright {
		style.Rotation, style.XAlign, style.YAlign = math.Pi/2, draw.XLeft, draw.YCenter
	}
	for i, s := range b.Series {
		if v, k := s.Values[g], places[i]; s.isBar() && !math.IsNaN(v) {
			at := vg.Point{X: (left(k) + left(k+1)) / 2, Y: clearOf(y(v), high, crossing[k]) + 1.5}
			if upright {
				at.X -= 0.1 * smallSize // digits have nothing below their line
			}
			c.FillText(style, at, digits(v))
		}
	}
}

// mark is the lower and the upper end of a mark that a number must not touch.
type mark struct{ low, high vg.Length }

// clearOf returns how high a number of a height stands above top: above all marks that would
// cross it.
func clearOf(top, height vg.Length, marks []mark) vg.Length {
	slices.SortFunc(marks, func(a, b mark) int { return cmp.Compare(a.low, b.low) })
	for _, m := range marks {
		if m.high > top && m.low < top+height+2 {
			top = m.high
		}
	}
	return top
}
