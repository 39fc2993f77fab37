package figures

import (
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// look is how a series is drawn. Colours are of Okabe and Ito (2008), which colour-blind people
// tell apart. Their brightness differs by a fifth from one to the next, so that they differ in
// grey print too. Stripes tell pairs of bars apart.
type look struct {
	fill    color.RGBA
	striped bool
	dashes  []vg.Length
	glyph   draw.GlyphDrawer
}

var (
	ours = []look{
		{color.RGBA{0, 114, 178, 255}, false, nil, draw.CircleGlyph{}},
		{color.RGBA{230, 159, 0, 255}, false, []vg.Length{6, 2}, draw.BoxGlyph{}},
		{color.RGBA{0, 114, 178, 255}, true, []vg.Length{2, 2}, draw.TriangleGlyph{}},
		{color.RGBA{230, 159, 0, 255}, true, []vg.Length{6, 2, 2, 2}, draw.PyramidGlyph{}},
		{color.RGBA{60, 60, 60, 255}, false, []vg.Length{1, 2}, draw.RingGlyph{}},
		{color.RGBA{0, 158, 115, 255}, false, []vg.Length{4, 4}, draw.SquareGlyph{}},
	}
	static = []look{
		{color.RGBA{225, 225, 225, 255}, false, []vg.Length{1, 1}, draw.RingGlyph{}},
		{color.RGBA{150, 150, 150, 255}, false, []vg.Length{3, 1}, draw.SquareGlyph{}},
		{color.RGBA{150, 150, 150, 255}, true, []vg.Length{5, 1}, draw.CrossGlyph{}},
	}
	line = draw.LineStyle{Color: color.Black, Width: vg.Points(0.6)}
)

// looks returns the look of every series of the panel.
func (p Panel) looks() []look {
	var n [2]int
	papers := 0
	list := make([]look, len(p.Series))
	for i, s := range p.Series {
		of, all := &n[0], ours
		if s.Role == roleStatic {
			of, all = &n[1], static
		}
		if s.Role == rolePaper || s.Role == roleCeiling || s.Role == roleExecuted {
			alone := p.Form == formLines && len(s.X) == 1 // and perhaps upon a point of a line
			list[i] = look{fill: color.RGBA{0, 0, 0, 255}, dashes: []vg.Length{1, 3}, glyph: diamond{hollow: alone || papers == 1}}
			if s.Role == rolePaper {
				papers++
			}
			continue
		}
		if list[i] = all[*of%len(all)]; s.Role == roleStatic && p.Form == formLines {
			list[i].fill = color.RGBA{110, 110, 110, 255} // a thin line must be darker
		}
		*of++
	}
	return list
}

// diamond is what stands for the paper. A hollow one is the second series of two, or shows the point
// below it.
type diamond struct{ hollow bool }

func (d diamond) DrawGlyph(c *draw.Canvas, _ draw.GlyphStyle, at vg.Point) {
	const r = 4.2
	var shape vg.Path
	for i, p := range []vg.Point{{X: at.X, Y: at.Y + r}, {X: at.X + r, Y: at.Y}, {X: at.X, Y: at.Y - r}, {X: at.X - r, Y: at.Y}} {
		if i == 0 {
			shape.Move(p)
		} else {
			shape.Line(p)
		}
	}
	shape.Close()
	if d.hollow {
		c.SetLineStyle(draw.LineStyle{Color: color.Black, Width: 1.2})
		c.Stroke(shape)
		return
	}
	c.SetColor(color.Black)
	c.Fill(shape)
	c.SetLineStyle(draw.LineStyle{Color: color.White, Width: 1})
	c.Stroke(shape)
}

// drawPoint draws what stands for executed runs.
func drawPoint(c draw.Canvas, at vg.Point) {
	c.DrawGlyph(draw.GlyphStyle{Color: color.White, Radius: 4.5, Shape: draw.CircleGlyph{}}, at)
	c.DrawGlyph(draw.GlyphStyle{Color: color.Black, Radius: 3.5, Shape: draw.CircleGlyph{}}, at)
	c.DrawGlyph(draw.GlyphStyle{Color: color.White, Radius: 1.5, Shape: draw.CircleGlyph{}}, at)
}

// entry is a series in a legend.
type entry struct {
	look
	name string
	role Role
	form Form
}

const swatch = 14

func (e entry) width() vg.Length { return swatch + 16 + textStyle(textSize).Width(e.name) }

// draw draws the entry with its lower left corner at a point.
func (e entry) draw(c draw.Canvas, at vg.Point) {
	middle := vg.Point{X: at.X + swatch/2, Y: at.Y + 3.5}
	switch {
	case e.role == rolePaper:
		e.glyph.DrawGlyph(&c, draw.GlyphStyle{}, middle)
	case e.role == roleExecuted:
		drawPoint(c, middle)
	case e.role == roleCeiling:
		c.StrokeLine2(ceilingLine, at.X, middle.Y, at.X+swatch, middle.Y)
	case e.form == formLines:
		c.StrokeLine2(draw.LineStyle{Color: e.fill, Width: 1.5, Dashes: e.dashes}, at.X, middle.Y, at.X+swatch, middle.Y)
		c.DrawGlyph(draw.GlyphStyle{Color: e.fill, Radius: 3, Shape: e.glyph}, middle)
	default:
		e.box(c, vg.Rectangle{Min: vg.Point{X: at.X, Y: at.Y}, Max: vg.Point{X: at.X + swatch, Y: at.Y + 7}})
	}
	c.FillText(textStyle(textSize), vg.Point{X: at.X + swatch + 4, Y: at.Y}, e.name)
}

var ceilingLine = draw.LineStyle{Color: color.Black, Width: 1.8}

// box fills a rectangle, with stripes where the look has them.
func (l look) box(c draw.Canvas, r vg.Rectangle) {
	c.SetColor(l.fill)
	c.Fill(r.Path())
	if l.striped {
		for y := r.Min.Y + 2; y < r.Max.Y; y += 4 {
			c.StrokeLine2(draw.LineStyle{Color: color.White, Width: 1.4}, r.Min.X, y, r.Max.X, y)
		}
	}
	c.SetLineStyle(line)
	c.Stroke(r.Path())
}

// legend returns the entries of a row of panels in lines that fit the picture, none where the panel
// above has the same ones. A name has the same look in all panels of a row.
func legend(row []Panel, above Panel) [][]entry {
	same := func(a, b Series) bool { return a.Name == b.Name && a.Role == b.Role }
	isAbove := func(p Panel) bool { return p.Form == above.Form && slices.EqualFunc(p.Series, above.Series, same) }
	if row[0].Form == formCells || !slices.ContainsFunc(row, func(p Panel) bool { return !isAbove(p) }) {
		return nil
	}
	lines, x, known := [][]entry{nil}, vg.Length(0), map[string]bool{}
	for _, p := range row {
		for i, s := range p.Series {
			if known[s.Name] {
				continue
			}
			known[s.Name] = true
			e := entry{p.looks()[i], s.Name, s.Role, p.Form}
			if x += e.width(); x > width-2*margin && len(lines[len(lines)-1]) > 0 {
				lines, x = append(lines, nil), e.width()
			}
			lines[len(lines)-1] = append(lines[len(lines)-1], e)
		}
	}
	return lines
}

// bars draws groups of bars, with marks for the paper and for ceilings.
type bars struct{ Panel }

// addBars adds the panel's bars to a diagram.
func (p Panel) addBars(d *plot.Plot) {
	d.Add(bars{p})
	names := slices.Clone(p.Groups)
	for i, name := range names {
		if len(name) > 9 && len(names) > 3 || len(name) > 16 {
			names[i] = strings.ReplaceAll(name, " ", "\n")
		}
	}
	d.NominalX(names...)
	d.X.Min, d.X.Max = -0.5, float64(len(p.Groups))-0.5
	d.Y.Min = 0
	d.Y.Max *= 1.12 // room for numbers above bars
}

// Plot implements plot.Plotter.
func (b bars) Plot(c draw.Canvas, d *plot.Plot) {
	x, y := d.Transforms(&c)
	looks, n := b.looks(), 0
	for _, s := range b.Series {
		if s.Role == roleOurs || s.Role == roleStatic {
			n++
		}
	}
	wide := 0.84 / float64(max(1, n))
	k, labels := 0, []label(nil)
	for i, s := range b.Series {
		if s.Role != roleOurs && s.Role != roleStatic {
			continue
		}
		for g, v := range s.Values {
			if math.IsNaN(v) {
				continue
			}
			left := float64(g) - 0.42 + float64(k)*wide
			looks[i].box(c, vg.Rectangle{Min: vg.Point{X: x(left), Y: y(0)}, Max: vg.Point{X: x(left + wide), Y: y(v)}})
			middle, top := x(left+wide/2), y(v)
			if len(s.Low) > 0 && s.High[g] > s.Low[g] {
				c.StrokeLine2(line, middle, y(s.Low[g]), middle, y(s.High[g]))
				c.StrokeLine2(line, middle-2, y(s.Low[g]), middle+2, y(s.Low[g]))
				c.StrokeLine2(line, middle-2, y(s.High[g]), middle+2, y(s.High[g]))
				top = y(s.High[g])
			}
			for _, c := range b.Series {
				if c.Role == roleCeiling && !math.IsNaN(c.Values[g]) {
					top = clearOf(top, y(c.Values[g]))
				}
			}
			labels = append(labels, label{vg.Point{X: middle, Y: top + 2}, x(wide) - x(0), v})
		}
		k++
	}
	papers := 0
	for _, s := range b.Series {
		if s.Role == rolePaper {
			papers++
		}
	}
	paper, executed := -float64(papers-1)/2, 0
	for i, s := range b.Series {
		for g, v := range s.Values {
			switch {
			case math.IsNaN(v):
			case s.Role == roleCeiling:
				c.StrokeLine2(ceilingLine, x(float64(g)-0.45), y(v), x(float64(g)+0.45), y(v))
			case s.Role == roleExecuted:
				drawPoint(c, vg.Point{X: x(float64(g) - 0.42 + (float64(executed)+0.5)*wide), Y: y(v)})
			case s.Role == rolePaper:
				looks[i].glyph.DrawGlyph(&c, draw.GlyphStyle{}, vg.Point{X: x(float64(g) + 0.42*paper), Y: y(v)})
			}
		}
		switch s.Role {
		case rolePaper:
			paper++
		case roleExecuted:
			executed++
		}
	}
	for _, l := range labels {
		l.draw(c)
	}
}

// clearOf returns how high a number stands on what ends at top: above a ceiling that would cross it.
func clearOf(top, ceiling vg.Length) vg.Length {
	if ceiling > top && ceiling < top+8 {
		return ceiling
	}
	return top
}

// label is the number above a bar of some width.
type label struct {
	at    vg.Point
	wide  vg.Length
	value float64
}

// draw writes the number with two decimals where it has room, on white.
func (l label) draw(c draw.Canvas) {
	text := strconv.FormatFloat(l.value, 'g', 2, 64)
	switch {
	case l.value >= 10:
		text = number(l.value)
	case l.value >= 0.1:
		text = strconv.FormatFloat(l.value, 'f', 2, 64)
	}
	style := textStyle(6)
	wide := style.Width(text)
	if wide > 1.1*l.wide {
		return
	}
	style.XAlign = draw.XCenter
	c.SetColor(color.White)
	c.Fill(vg.Rectangle{Min: vg.Point{X: l.at.X - wide/2, Y: l.at.Y - 0.5}, Max: vg.Point{X: l.at.X + wide/2, Y: l.at.Y + 5}}.Path())
	c.FillText(style, l.at, text)
}

// DataRange implements plot.DataRanger.
func (b bars) DataRange() (xmin, xmax, ymin, ymax float64) {
	for _, s := range b.Series {
		for i, v := range s.Values {
			if len(s.High) > 0 {
				v = s.High[i]
			}
			if !math.IsNaN(v) {
				ymax = max(ymax, v)
			}
		}
	}
	return -0.5, float64(len(b.Groups)) - 0.5, 0, ymax
}

// addLines adds the panel's lines to a diagram.
func (p Panel) addLines(d *plot.Plot) {
	for i, s := range p.Series {
		var points plotter.XYs
		for k, x := range s.X {
			if !math.IsNaN(s.Values[k]) {
				points = append(points, plotter.XY{X: x, Y: s.Values[k]})
			}
		}
		l := p.looks()[i]
		d.Add(&plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: l.fill, Width: 1.5, Dashes: l.dashes}})
		if len(points) <= 40 {
			d.Add(&plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: l.fill, Radius: 3, Shape: l.glyph}})
		}
	}
	if strings.Contains(p.Log, "x") {
		d.X.Scale, d.X.Tick.Marker = plot.LogScale{}, logTicks{}
	}
	if strings.Contains(p.Log, "y") {
		d.Y.Scale, d.Y.Tick.Marker = plot.LogScale{}, logTicks{}
		return
	}
	d.Y.Min = min(0, d.Y.Min)
	d.Y.Max *= 1.05
}

// logTicks are the ticks of a logarithmic axis. Over less than two decades 2 and 5 have labels too.
// plot.LogTicks has none below 1.
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	for decade := math.Floor(math.Log10(low)); math.Pow(10, decade) <= high; decade++ {
		for m := 1.0; m < 10; m++ {
			t := plot.Tick{Value: m * math.Pow(10, decade)}
			if m == 1 || (m == 2 || m == 5) && high/low < 100 {
				t.Label = strconv.FormatFloat(t.Value, 'g', -1, 64)
			}
			if t.Value >= low && t.Value <= high {
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

// spans draws what each stage did when.
type spans struct{ Panel }

// addSpans adds the panel's spans to a diagram.
func (p Panel) addSpans(d *plot.Plot) {
	d.Add(spans{p})
	_, end, _, rows := spans{p}.DataRange()
	d.X.Min, d.X.Max, d.Y.Min, d.Y.Max = 0, max(end, p.End), 0, rows
	var ticks plot.ConstantTicks
	for r := range int(rows) {
		ticks = append(ticks, plot.Tick{Value: rows - float64(r) - 0.5, Label: number(float64(r))})
	}
	d.Y.Tick.Marker, d.Y.Tick.Length = ticks, 0
}

// Plot implements plot.Plotter.
func (s spans) Plot(c draw.Canvas, d *plot.Plot) {
	x, y := d.Transforms(&c)
	for i, series := range s.Series {
		l := s.looks()[i]
		for k, row := range series.Rows {
			top := d.Y.Max - float64(row) - 0.1
			r := vg.Rectangle{Min: vg.Point{X: x(series.X[k]), Y: y(top - 0.8)}, Max: vg.Point{X: x(series.Values[k]), Y: y(top)}}
			c.SetColor(l.fill)
			c.Fill(r.Path())
			c.SetLineStyle(draw.LineStyle{Color: color.White, Width: 0.4})
			c.Stroke(r.Path())
		}
	}
}

// DataRange implements plot.DataRanger.
func (s spans) DataRange() (xmin, xmax, ymin, ymax float64) {
	for _, series := range s.Series {
		for k, row := range series.Rows {
			xmax, ymax = max(xmax, series.Values[k]), max(ymax, float64(row)+1)
		}
	}
	return 0, xmax, 0, ymax
}
