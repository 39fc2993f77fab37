package layouts

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"dynmo/src/schedule"
)

//go:embed picture.html
var pictureText string

var pictureTemplate = template.Must(template.New("picture").Parse(pictureText))

// Sizes of a timeline, in units of the picture.
const (
	pictureWidth = 10_000.0
	rowHeight    = 220.0
	barHeight    = 180.0
)

// timeline is a simulated step as a picture.
type timeline struct {
	Name, Layout string
	Seconds      float64
	Height       float64
	Rows         []row
	Paths        []path
}

// row is a stage.
type row struct {
	Y    float64
	Name string
}

// path is the bars of one colour: an SVG path.
type path struct{ Class, D string }

// draw returns the timeline of a layout. A step of `longest` seconds has the full width.
func (v *solver) draw(name string, l Named, longest float64) timeline {
	units, _ := v.unitsOf(l.Cuts)
	t := timeline{Name: name, Layout: l.Text, Seconds: v.evaluate(units), Height: rowHeight * float64(v.Stages)}
	bars := make(map[string]*strings.Builder)
	for i, x := range v.list {
		class := "f"
		switch x.op {
		case schedule.B, schedule.I:
			class = "b"
		case schedule.W:
			class = "w"
		}
		class += fmt.Sprint(v.schedule.Map.Chunk(int(x.virtual)) % 4)
		if bars[class] == nil {
			bars[class] = new(strings.Builder)
		}
		length := v.length(x) * pictureWidth / longest
		end := v.end[i] * pictureWidth / longest
		fmt.Fprintf(bars[class], "M%.1f %.0fh%.1fv%.0fh-%.1fz", end-length, rowHeight*float64(v.schedule.Map.Stage(int(x.virtual))), length, barHeight, length)
	}
	for _, op := range []string{"f", "b", "w"} {
		for chunk := range 4 {
			if b := bars[fmt.Sprint(op, chunk)]; b != nil {
				t.Paths = append(t.Paths, path{fmt.Sprint(op, chunk), b.String()})
			}
		}
	}
	for stage := range v.Stages {
		t.Rows = append(t.Rows, row{rowHeight*float64(stage) + 130, fmt.Sprintf("stage %d", stage)})
	}
	return t
}

// length returns the seconds of an instruction.
func (v *solver) length(x instruction) float64 {
	c := v.costs[x.virtual]
	switch x.op {
	case schedule.F:
		return c.Forward
	case schedule.B:
		return c.Input + c.Weight
	case schedule.I:
		return c.Input
	}
	return c.Weight
}

// HTML writes a page with the simulated steps of the present and the best layout, on one scale.
func (a Answer) HTML(out io.Writer) error {
	gained := ""
	if a.Gain != nil {
		gained = fmt.Sprintf("%.3f", *a.Gain)
	}
	return pictureTemplate.Execute(out, struct {
		Answer
		Timelines []timeline
		Width     float64
		Gained    string
		Divided   bool // whether backwards are divided
	}{a, a.timelines, pictureWidth + 700, gained, strings.HasPrefix(string(a.Best[0].Schedule), "zb")})
}
