package figures

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"codeberg.org/go-pdf/fpdf"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgpdf"
	"gonum.org/v1/plot/vg/vgsvg"

	"dynmo/src/files"
)

// Sizes of a picture. It is as wide as a column of a paper, so that it is printed in its own size.
// Text has 6 points or more.
const (
	width      = 85 * vg.Millimeter
	margin     = 4
	plotHeight = 54                    // of bars, between their axis and the top
	lineHeight = 100                   // of lines and timelines
	plotWidth  = width - 2*margin - 26 // at least: the vertical axis takes the rest
	titleSize  = 8
	textSize   = 7
	smallSize  = 6
	dpi        = 300
)

// endings are the endings of the files that Save writes.
var endings = []string{"svg", "png", "pdf", "md", "csv"}

// Save draws the figure into a folder: pictures and tables, NAME.svg and so on. Equal figures
// give equal files.
func (f Figure) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	made := time.Unix(0, 0).UTC()
	fpdf.SetDefaultCreationDate(made)
	fpdf.SetDefaultModificationDate(made)
	fpdf.SetDefaultCatalogSort(true)
	height := f.draw(draw.NewCanvas(&recorder.Canvas{}, width, 0))
	for _, ending := range endings {
		var text io.WriterTo
		switch ending {
		case "svg":
			c := vgsvg.NewWith(vgsvg.UseWH(width, height), vgsvg.EmbedFonts(true)) // few have Liberation Sans
			f.draw(draw.New(c))
			text = c
		case "png":
			c := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(color.White))}
			f.draw(draw.New(c))
			text = c
		case "pdf":
			c := vgpdf.New(width, height)
			f.draw(draw.New(c))
			text = c
		case "md":
			text = bytes.NewBufferString(f.markdown())
		case "csv":
			text = bytes.NewBufferString(f.csv())
		}
		err := files.Write(filepath.Join(dir, f.Name+"."+ending), func(w io.Writer) error {
			_, err := text.WriteTo(w)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s.%s: %w", f.Name, ending, err)
		}
	}
	return nil
}

// textStyle returns the style of text of a size.
func textStyle(size font.Length) draw.TextStyle {
	face := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	return draw.TextStyle{Color: color.Black, Font: face, Handler: plot.DefaultTextHandler}
}

// wrap breaks text into lines of a width.
func wrap(text string, style draw.TextStyle, most vg.Length) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		next := strings.TrimSpace(line + " " + word)
		if line != "" && style.Width(next) > most {
			lines = append(lines, line)
			next = word
		}
		line = next
	}
	return append(lines, line)
}

// leading is the height of a line of text of a size.
func leading(size vg.Length) vg.Length { return 1.25 * size }

// draw draws the picture from the top of the canvas down, and returns its height.
func (f Figure) draw(c draw.Canvas) vg.Length {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	left, top := c.Min.X+margin, c.Max.Y-margin
	write := func(text string, size vg.Length) {
		for _, line := range wrap(text, textStyle(size), width-2*margin) {
			top -= leading(size)
			c.FillText(textStyle(size), vg.Point{X: left, Y: top + 0.25*size}, line)
		}
	}
	write(f.Title, titleSize)
	known := map[string]bool{}
	for _, p := range f.Panels {
		if f.isLong(p) {
			continue
		}
		top -= margin
		entries := p.legend(known)
		for _, line := range entries {
			top -= leading(textSize)
			x := left
			for _, e := range line {
				e.draw(c, vg.Point{X: x, Y: top})
				x += e.width()
			}
		}
		if entries != nil {
			top -= 0.5 * margin
		}
		most, own := f.top(p)
		title := p.Title
		if own {
			title += " (a scale of its own)"
		}
		write(title, textSize)
		area := c
		area.Min.X, area.Max = left, vg.Point{X: c.Max.X - margin, Y: top - 0.5*margin}
		area.Min.Y = area.Max.Y - p.height()
		p.draw(area, most)
		top = area.Min.Y
	}
	top -= margin
	for _, text := range f.caption() {
		write(text, smallSize)
	}
	return c.Max.Y - top + margin
}

// isLong reports whether a table is left out of the picture, since it is longer than a diagram.
func (f Figure) isLong(p Panel) bool {
	return p.Form == formCells && len(f.Panels) > 1 && p.height() > lineHeight
}

// top returns the upper end of the vertical axis of bars. Panels of one quantity have one axis, so
// that they can be compared. A panel that would fill less than a quarter of this axis has its own.
func (f Figure) top(p Panel) (top float64, own bool) {
	for _, other := range f.Panels {
		if other.Form == p.Form && other.Y == p.Y {
			top = max(top, other.top())
		}
	}
	if mine := p.top(); mine < top/4 {
		return mine, true
	}
	return top, false
}

// height returns the height of a panel below its title.
func (p Panel) height() vg.Length {
	switch p.Form {
	case formCells:
		_, _, lines, _ := p.columns()
		return vg.Length(lines+len(p.Groups))*leading(smallSize) + margin
	case formBars:
		_, high, _ := p.names()
		return plotHeight + high + namesGap
	}
	return lineHeight
}

// draw draws a panel below its title and legend. The vertical axis of bars ends at top.
func (p Panel) draw(c draw.Canvas, top float64) {
	if p.Form == formCells {
		p.drawCells(c)
		return
	}
	d := plot.New()
	d.BackgroundColor = nil
	for _, a := range []*plot.Axis{&d.X, &d.Y} {
		a.Label.TextStyle.Font, a.Tick.Label.Font = textStyle(textSize).Font, textStyle(textSize).Font
		a.Tick.Length = 3
	}
	d.X.Label.Text = p.X
	switch p.Form {
	case formBars:
		p.addBars(d, top)
	case formLines:
		p.addLines(d)
	case formTimeline:
		p.addSpans(d)
	}
	d.X.Padding, d.Y.Padding = 0, 0
	if p.Form == formBars {
		d.X.Padding = namesGap
	}
	name := textStyle(textSize) // plot.Plot has no room for a long one beside a logarithmic axis
	name.Rotation, name.XAlign = math.Pi/2, draw.XCenter
	height := name.Height(p.Y)
	area := draw.Crop(c, height+2, 0, 0, 0)
	d.Draw(area)
	area = d.DataCanvas(area)
	c.FillText(name, vg.Point{X: c.Min.X + height - name.FontExtents().Descent, Y: area.Center().Y}, p.Y)
}

// columns lays out a table: the heads of its columns in lines, their widths and the gap between
// them. Heads have a word a line where a line is too wide.
func (p Panel) columns() (heads [][]string, widths []vg.Length, lines int, gap vg.Length) {
	style := textStyle(smallSize)
	for _, isBroken := range []bool{false, true} {
		heads, widths, lines, gap = nil, nil, 0, width-2*margin
		for i := -1; i < len(p.Series); i++ {
			head, cells := p.X, p.Groups
			if i >= 0 {
				head, cells = p.Series[i].Name, nil
				for row := range p.Groups {
					cells = append(cells, p.cell(p.Series[i], row))
				}
			}
			if i > 0 {
				head = strings.TrimSuffix(head, ", "+p.Series[i-1].Name) // "paper, uniform" beside "uniform" is "paper"
			}
			words := []string{head}
			if isBroken {
				words = strings.Fields(head)
			}
			wide := vg.Length(0)
			for _, text := range slices.Concat(words, cells) {
				wide = max(wide, style.Width(text))
			}
			heads, widths = append(heads, words), append(widths, wide)
			lines, gap = max(lines, len(words)), gap-wide
		}
		if gap > vg.Length(len(widths))*margin {
			break
		}
	}
	return heads, widths, lines, min(gap/vg.Length(len(p.Series)), 5*margin)
}

// drawCells draws the panel as a table.
func (p Panel) drawCells(c draw.Canvas) {
	heads, widths, lines, gap := p.columns()
	x, y := c.Min.X, c.Max.Y-vg.Length(lines)*leading(smallSize)
	c.StrokeLine2(line, c.Min.X, y-0.5, c.Max.X, y-0.5)
	for i, head := range heads {
		style, edge := textStyle(smallSize), x
		if i > 0 {
			style.XAlign, edge = draw.XRight, x+widths[i]
		}
		write := func(row int, text string) {
			at := vg.Point{X: edge, Y: y - vg.Length(row+1)*leading(smallSize)}
			if row < 0 {
				at.Y += 0.25 * smallSize
			}
			c.FillText(style, at, text)
		}
		for k, word := range head {
			write(k-len(head), word)
		}
		for row, text := range p.Groups {
			if i > 0 {
				text = p.cell(p.Series[i-1], row)
			}
			write(row, text)
		}
		x += widths[i] + gap
	}
}
