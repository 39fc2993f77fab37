package figures

import (
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

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
		d.Add(&plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: l.stroke, Width: l.wide, Dashes: l.dashes}})
		if len(points) <= 40 {
			d.Add(&plotter.Scatter{XYs: points, GlyphStyle: draw.GlyphStyle{Color: l.stroke, Radius: l.radius, Shape: l.glyph}})
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
				for unit, name := range []string{"k", "M", "G"} {
					if x := t.Value / math.Pow(1000, float64(unit+1)); x >= 1 && t.Value >= 1e4 {
						t.Label = strconv.FormatFloat(x, 'g', -1, 64) + name
					}
				}
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
