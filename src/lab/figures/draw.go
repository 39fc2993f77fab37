package figures

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"codeberg.org/go-pdf/fpdf"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgpdf"
	"gonum.org/v1/plot/vg/vgsvg"

	"dynmo/src/files"
)

// Sizes of a picture. Its text can be read where the picture is 600 pixels wide.
const (
	width       = 7 * vg.Inch
	margin      = 0.1 * vg.Inch
	panelHeight = 2.5 * vg.Inch
	rowHeight   = 0.19 * vg.Inch // of a table
	titleSize   = 11
	textSize    = 8.5
	smallSize   = 7
	dpi         = 200
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
	height := f.height()
	for _, ending := range endings {
		var text io.WriterTo
		switch ending {
		case "svg":
			c := vgsvg.New(width, height)
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

// captionLines returns the caption as the picture has it.
func (f Figure) captionLines() (lines []string) {
	for _, text := range f.caption() {
		lines = append(lines, wrap(text, textStyle(smallSize), width-2*margin)...)
	}
	return lines
}

// leading is the height of a line of text of a size.
func leading(size vg.Length) vg.Length { return 1.25 * size }

// isNarrow reports whether a panel has half of the picture's width.
func (f Figure) isNarrow(p Panel) bool {
	return p.Form != formCells && p.Form != formTimeline && len(p.Groups) <= 4 && len(f.Panels) > 2
}

// rows returns the panels as they stand in the picture: narrow ones in pairs.
func (f Figure) rows() (rows [][]Panel) {
	for _, p := range f.Panels {
		last := len(rows) - 1
		if last >= 0 && len(rows[last]) == 1 && f.isNarrow(rows[last][0]) && f.isNarrow(p) {
			rows[last] = append(rows[last], p)
			continue
		}
		rows = append(rows, []Panel{p})
	}
	return rows
}

// height returns the height of the picture.
func (f Figure) height() vg.Length {
	h := 2*margin + 1.6*titleSize + vg.Length(len(f.captionLines()))*leading(smallSize) + margin
	var last Panel
	for _, row := range f.rows() {
		h += heightOf(row, last)
		last = row[0]
	}
	return h
}

// heightOf returns the height of a row of panels with its titles and legend, below another panel.
func heightOf(row []Panel, above Panel) vg.Length {
	h := leading(textSize) + 2*margin
	if row[0].Form == formCells {
		return h + vg.Length(len(row[0].Groups)+1)*rowHeight + margin
	}
	return h + vg.Length(len(legend(row, above)))*leading(textSize) + panelHeight
}

// draw draws the whole picture.
func (f Figure) draw(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	top := c.Max.Y - margin
	write := func(text string, left vg.Length, style draw.TextStyle) {
		c.FillText(style, vg.Point{X: left, Y: top + 0.25*style.Font.Size}, text)
	}
	top -= leading(titleSize)
	write(f.Title, c.Min.X+margin, textStyle(titleSize))
	top -= 0.35 * titleSize
	var last Panel
	for _, row := range f.rows() {
		bottom := top - heightOf(row, last)
		for _, entries := range legend(row, last) {
			top -= leading(textSize)
			x := c.Min.X + margin
			for _, e := range entries {
				e.draw(c, vg.Point{X: x, Y: top})
				x += e.width()
			}
		}
		last = row[0]
		top -= leading(textSize) + 0.7*margin
		wide := (c.Max.X - c.Min.X - 2*margin) / 2
		if !f.isNarrow(row[0]) {
			wide *= 2
		}
		for i, p := range row {
			left := c.Min.X + margin + vg.Length(i)*wide
			write(p.Title, left, textStyle(textSize))
			area := draw.Crop(c, left-c.Min.X, 0, 0, 0)
			area.Max.X = left + wide - margin
			area.Min.Y, area.Max.Y = bottom, top
			p.draw(area)
		}
		top = bottom
	}
	top -= margin
	for _, line := range f.captionLines() {
		top -= leading(smallSize)
		write(line, c.Min.X+margin, textStyle(smallSize))
	}
}

// draw draws a panel below its title and legend.
func (p Panel) draw(c draw.Canvas) {
	if p.Form == formCells {
		p.drawCells(c)
		return
	}
	d := plot.New()
	d.BackgroundColor = nil
	for _, a := range []*plot.Axis{&d.X, &d.Y} {
		a.Label.TextStyle.Font.Size, a.Tick.Label.Font.Size = textSize, textSize
		a.Label.TextStyle.Font.Variant, a.Tick.Label.Font.Variant = "Sans", "Sans"
		a.Padding = 0
	}
	d.X.Label.Text, d.Y.Label.Text = p.X, p.Y
	switch p.Form {
	case formBars:
		p.addBars(d)
	case formLines:
		p.addLines(d)
	case formTimeline:
		p.addSpans(d)
	}
	c.Max.Y -= 0.5 * margin
	c.Max.X -= margin
	d.Draw(c)
}

// drawCells draws the panel as a table.
func (p Panel) drawCells(c draw.Canvas) {
	style, head := textStyle(textSize), textStyle(6)
	first := style.Width(p.X)
	for _, g := range p.Groups {
		first = max(first, style.Width(g))
	}
	first += 2 * margin
	column := (c.Max.X - c.Min.X - first) / vg.Length(len(p.Series))
	y := c.Max.Y - rowHeight
	c.FillText(style, vg.Point{X: c.Min.X, Y: y}, p.X)
	for i, s := range p.Series {
		c.FillText(head, vg.Point{X: c.Min.X + first + vg.Length(i)*column, Y: y}, s.Name)
	}
	line := draw.LineStyle{Color: color.Black, Width: vg.Points(0.5)}
	c.StrokeLine2(line, c.Min.X, y-3, c.Max.X, y-3)
	for i, g := range p.Groups {
		y -= rowHeight
		c.FillText(style, vg.Point{X: c.Min.X, Y: y}, g)
		for j, s := range p.Series {
			c.FillText(style, vg.Point{X: c.Min.X + first + vg.Length(j)*column, Y: y}, p.cell(s, i))
		}
	}
}
