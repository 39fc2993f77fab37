package figures

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// look is how a series is drawn. Colours are of Okabe and Ito (2008), which colour-blind people
// tell apart. Two looks differ in brightness or in their hatch, so that they differ in grey print
// too.
type look struct {
	fill   color.RGBA // of a bar
	stroke color.RGBA // of a line
	hatch  hatch
	ink    color.Color // of the hatch
	dashes []vg.Length
	glyph  draw.GlyphDrawer
	wide   vg.Length // of a line
	radius vg.Length // of a line's points
}

// hatch is the direction of the lines upon a bar.
type hatch int

const (
	plain hatch = iota
	level
	slanted
)

var (
	blue, orange, green = color.RGBA{0, 114, 178, 255}, color.RGBA{230, 159, 0, 255}, color.RGBA{0, 158, 115, 255}
	dark, grey, light   = color.RGBA{40, 40, 40, 255}, color.RGBA{110, 110, 110, 255}, color.RGBA{215, 215, 215, 255}
	sky                 = color.RGBA{86, 180, 233, 255}

	ours = []look{
		{fill: blue, stroke: blue, glyph: draw.CircleGlyph{}},
		{fill: orange, stroke: orange, dashes: []vg.Length{5, 2}, glyph: draw.BoxGlyph{}},
		{fill: blue, stroke: dark, hatch: level, ink: color.White, dashes: []vg.Length{1.5, 1.5}, glyph: draw.PyramidGlyph{}},
		{fill: orange, stroke: sky, hatch: slanted, ink: color.White, dashes: []vg.Length{5, 1.5, 1.5, 1.5}, glyph: draw.CircleGlyph{}},
		{fill: dark, stroke: green, dashes: []vg.Length{1, 2}, glyph: draw.RingGlyph{}},
		{fill: green, stroke: grey, hatch: slanted, ink: color.Black, dashes: []vg.Length{3, 3}, glyph: draw.SquareGlyph{}},
	}
	static = []look{
		{fill: light, stroke: grey, dashes: []vg.Length{1, 1}, glyph: draw.RingGlyph{}},
		{fill: light, stroke: grey, hatch: level, ink: color.Black, dashes: []vg.Length{3, 1}, glyph: draw.SquareGlyph{}},
		{fill: light, stroke: grey, hatch: slanted, ink: color.Black, dashes: []vg.Length{5, 1}, glyph: draw.CrossGlyph{}},
	}
	line        = draw.LineStyle{Color: color.Black, Width: 0.4}
	ceilingLine = draw.LineStyle{Color: color.Black, Width: 1.2}
)

// looks returns the look of every series of the panel. A line is thinner than the ones before it and
// has smaller points, so that these can be seen where lines coincide.
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
			list[i] = look{stroke: color.RGBA{A: 255}, dashes: []vg.Length{1, 3}, glyph: diamond{hollow: alone || papers == 1}, wide: 1}
			if s.Role == rolePaper {
				papers++
			}
			continue
		}
		list[i] = all[*of%len(all)]
		list[i].wide, list[i].radius = max(0.6, 1.8-0.4*vg.Length(*of)), max(1.2, 2.6-0.5*vg.Length(*of))
		*of++
	}
	return list
}

// box fills a rectangle and hatches it.
func (l look) box(c draw.Canvas, r vg.Rectangle) {
	c.SetColor(l.fill)
	c.Fill(r.Path())
	ink := draw.LineStyle{Color: l.ink, Width: 0.9}
	switch size := r.Size(); l.hatch {
	case level:
		for y := r.Min.Y + 1.6; y < r.Max.Y; y += 3 {
			c.StrokeLine2(ink, r.Min.X, y, r.Max.X, y)
		}
	case slanted:
		for x := -size.Y; x < size.X; x += 4 {
			from, to := max(0, -x), min(size.Y, size.X-x)
			c.StrokeLine2(ink, r.Min.X+x+from, r.Min.Y+from, r.Min.X+x+to, r.Min.Y+to)
		}
	}
	c.SetLineStyle(line)
	c.Stroke(r.Path())
}

// diamond is what stands for the paper. A hollow one is the second series of two, or shows the point
// below it.
type diamond struct{ hollow bool }

// diamondRadius is half of a diamond's height.
const diamondRadius = 3

func (d diamond) DrawGlyph(c *draw.Canvas, _ draw.GlyphStyle, at vg.Point) {
	const r = diamondRadius
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
		c.SetLineStyle(draw.LineStyle{Color: color.Black, Width: 0.8})
		c.Stroke(shape)
		return
	}
	c.SetColor(color.Black)
	c.Fill(shape)
	c.SetLineStyle(draw.LineStyle{Color: color.White, Width: 0.6})
	c.Stroke(shape)
}

// pointRadius is that of the points of executed runs.
const pointRadius = 3

// drawPoint draws what stands for executed runs.
func drawPoint(c draw.Canvas, at vg.Point) {
	c.DrawGlyph(draw.GlyphStyle{Color: color.White, Radius: pointRadius, Shape: draw.CircleGlyph{}}, at)
	c.DrawGlyph(draw.GlyphStyle{Color: color.Black, Radius: 2.4, Shape: draw.CircleGlyph{}}, at)
	c.DrawGlyph(draw.GlyphStyle{Color: color.White, Radius: 1, Shape: draw.CircleGlyph{}}, at)
}

// entry is a series in a legend.
type entry struct {
	look
	name string
	role Role
	form Form
}

const swatch = 14

func (e entry) width() vg.Length { return swatch + 12 + textStyle(textSize).Width(e.name) }

// draw draws the entry with its lower left corner at a point.
func (e entry) draw(c draw.Canvas, at vg.Point) {
	middle := vg.Point{X: at.X + swatch/2, Y: at.Y + 3}
	switch {
	case e.role == rolePaper:
		e.glyph.DrawGlyph(&c, draw.GlyphStyle{}, middle)
	case e.role == roleExecuted:
		drawPoint(c, middle)
	case e.role == roleCeiling:
		c.StrokeLine2(ceilingLine, at.X, middle.Y, at.X+swatch, middle.Y)
	case e.form == formLines:
		c.StrokeLine2(draw.LineStyle{Color: e.stroke, Width: e.wide, Dashes: e.dashes}, at.X, middle.Y, at.X+swatch, middle.Y)
		c.DrawGlyph(draw.GlyphStyle{Color: e.stroke, Radius: e.radius, Shape: e.glyph}, middle)
	default:
		e.box(c, vg.Rectangle{Min: vg.Point{X: at.X, Y: at.Y}, Max: vg.Point{X: at.X + swatch, Y: at.Y + 6}})
	}
	c.FillText(textStyle(textSize), vg.Point{X: at.X + swatch + 4, Y: at.Y}, e.name)
}

// legend returns the marks of the panel that no panel above has, in lines that fit the picture.
// Points of executed runs stand on the bars that they are compared with, and are one mark. known
// are the marks so far.
func (p Panel) legend(known map[string]bool) (lines [][]entry) {
	if p.Form == formCells {
		return nil
	}
	x := vg.Length(width)
	for i, l := range p.looks() {
		e := entry{l, p.Series[i].Name, p.Series[i].Role, p.Form}
		if e.role == roleExecuted {
			e.name = "executed"
		}
		key := fmt.Sprint(e)
		if known[key] {
			continue
		}
		known[key] = true
		if x += e.width(); x > width-2*margin {
			lines, x = append(lines, nil), e.width()
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], e)
	}
	return lines
}
