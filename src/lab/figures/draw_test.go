package figures

import (
	"fmt"
	"image"
	"image/color"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"dynmo/src/expect"
)

// sheet is a canvas that keeps the boxes of texts and of everything else, in points.
type sheet struct {
	texts []box
	marks []box
	turns []turn // Push and Pop
}

// box is the ink of a text or of a mark.
type box struct {
	vg.Rectangle
	text string
	size vg.Length // of text
}

// turn takes points to the page: by an angle, then by an offset.
type turn struct {
	angle float64
	to    vg.Point
}

func (s *sheet) now() *turn { return &s.turns[len(s.turns)-1] }

// page returns where a point is on the page.
func (t turn) page(p vg.Point) vg.Point {
	sin, cos := vg.Length(math.Sin(t.angle)), vg.Length(math.Cos(t.angle))
	return vg.Point{X: t.to.X + cos*p.X - sin*p.Y, Y: t.to.Y + sin*p.X + cos*p.Y}
}

// around returns the box of points.
func (s *sheet) around(points ...vg.Point) (r vg.Rectangle) {
	for i, p := range points {
		p = s.now().page(p)
		if i == 0 {
			r = vg.Rectangle{Min: p, Max: p}
		}
		r.Min, r.Max = vg.Point{X: min(r.Min.X, p.X), Y: min(r.Min.Y, p.Y)}, vg.Point{X: max(r.Max.X, p.X), Y: max(r.Max.Y, p.Y)}
	}
	return r
}

func (s *sheet) SetLineWidth(vg.Length)              {}
func (s *sheet) SetLineDash([]vg.Length, vg.Length)  {}
func (s *sheet) SetColor(color.Color)                {}
func (s *sheet) Scale(float64, float64)              { panic("text has no size in points") }
func (s *sheet) DrawImage(vg.Rectangle, image.Image) {}
func (s *sheet) Rotate(angle float64)                { s.now().angle += angle }
func (s *sheet) Translate(p vg.Point)                { s.now().to = s.now().page(p) }
func (s *sheet) Push()                               { s.turns = append(s.turns, *s.now()) }
func (s *sheet) Pop()                                { s.turns = s.turns[:len(s.turns)-1] }
func (s *sheet) Stroke(path vg.Path)                 { s.Fill(path) }

// Fill implements vg.Canvas. Each line of a path is a mark, so that text may stand inside a frame.
func (s *sheet) Fill(path vg.Path) {
	var first, last vg.Point
	for _, step := range path {
		switch step.Type {
		case vg.MoveComp:
			first = step.Pos
		case vg.CloseComp:
			s.marks = append(s.marks, box{Rectangle: s.around(last, first)})
		case vg.LineComp:
			s.marks = append(s.marks, box{Rectangle: s.around(last, step.Pos)})
		case vg.ArcComp:
			r := vg.Point{X: step.Radius, Y: step.Radius}
			s.marks = append(s.marks, box{Rectangle: s.around(step.Pos.Sub(r), step.Pos.Add(r))})
		}
		last = step.Pos
	}
}

// FillString implements vg.Canvas. Capitals and digits of the font are 0.73 of its size high, and
// letters go 0.21 of it below their line.
func (s *sheet) FillString(f font.Face, at vg.Point, text string) {
	low, size := vg.Length(0), f.Font.Size
	if strings.ContainsAny(text, "gjpqy,;()/") {
		low = -0.21 * size
	}
	if strings.TrimSpace(text) != "" {
		s.texts = append(s.texts, box{s.around(at.Add(vg.Point{Y: low}), at.Add(vg.Point{X: f.Width(strings.TrimRight(text, " ")), Y: 0.73 * size})), text, size})
	}
}

// overlaps reports whether two boxes share more than a tenth of a point in both directions.
func (b box) overlaps(other box) bool {
	const touch = 0.1
	return b.Min.X+touch < other.Max.X && other.Min.X+touch < b.Max.X && b.Min.Y+touch < other.Max.Y && other.Min.Y+touch < b.Max.Y
}

// pictured returns what is on the picture of a figure, and its height.
func pictured(f Figure) (s *sheet, height vg.Length) {
	s = &sheet{turns: make([]turn, 1)}
	return s, f.draw(draw.NewCanvas(s, width, 0))
}

// crowded is a figure with more groups and bars than have room.
func crowded() Figure {
	p := Panel{Title: strings.Repeat("a title ", 30), Form: formBars, Y: "speedup", Series: make([]Series, 6)}
	for g := range 24 {
		p.Groups = append(p.Groups, fmt.Sprint("a configuration ", g))
		for i := range p.Series {
			p.Series[i].Name = fmt.Sprint("balancer ", i)
			p.Series[i].Values = append(p.Series[i].Values, float64(g+i))
		}
	}
	return Figure{Name: "crowded", Title: p.Title, Panels: []Panel{p}}
}

// TestPictures: text is at least 6 points high in a column of a paper, on the page, and free of
// other text and of all marks.
func TestPictures(t *testing.T) {
	list := []Figure{sample(), crowded()}
	names, _ := Names()
	for _, name := range names {
		f, err := Read(kept, kept, name)
		expect.OK(t, err)
		list = append(list, f)
	}
	for _, f := range list {
		name := f.Name
		s, height := pictured(f)
		if height > 10.8*vg.Inch {
			t.Errorf("%s: %v points high, want at most a page", name, height)
		}
		for i, b := range s.texts {
			if b.size < 6 {
				t.Errorf("%s: %q has %v points", name, b.text, b.size)
			}
			if b.Min.X < 0 || b.Max.X > width || b.Min.Y < -height || b.Max.Y > 0 {
				t.Errorf("%s: %q is not on the page: %v", name, b.text, b.Rectangle)
			}
			for _, other := range s.texts[:i] {
				if b.overlaps(other) {
					t.Errorf("%s: %q and %q overlap: %v and %v", name, b.text, other.text, b.Rectangle, other.Rectangle)
				}
			}
			for _, m := range s.marks {
				m.Min, m.Max = m.Min.Sub(vg.Point{X: 0.2, Y: 0.2}), m.Max.Add(vg.Point{X: 0.2, Y: 0.2}) // half of a line's width
				if b.overlaps(m) {
					t.Errorf("%s: %q has a mark upon it: %v and %v", name, b.text, b.Rectangle, m.Rectangle)
				}
			}
		}
	}
}

// TestTicks: panels that are compared have equal ticks at equal heights.
func TestTicks(t *testing.T) {
	f, err := Read(kept, kept, "fig3")
	expect.OK(t, err)
	s, _ := pictured(f)
	var panels [][]string
	zero := vg.Length(0)
	for _, b := range s.texts {
		if _, err := strconv.ParseFloat(b.text, 64); err != nil || b.Max.X > 20 { // left of the vertical axis
			continue
		}
		if b.text == "0" {
			panels, zero = append(panels, nil), b.Min.Y
		}
		last := len(panels) - 1
		panels[last] = append(panels[last], fmt.Sprintf("%s at %.2f", b.text, b.Min.Y-zero))
	}
	if len(panels) != 8 {
		t.Fatalf("%d panels with ticks, want 8: %q", len(panels), panels)
	}
	for _, p := range panels {
		if len(p) < 3 || !slices.Equal(p, panels[0]) {
			t.Errorf("ticks %q and %q", p, panels[0])
		}
	}
}

// TestTop: a panel has a scale of its own where little would be seen of it on the common one.
func TestTop(t *testing.T) {
	bars := func(most float64) Panel {
		return Panel{Form: formBars, Y: "speedup", Groups: []string{"a"}, Series: []Series{{Values: Values{most}}}}
	}
	f := Figure{Panels: []Panel{bars(10), bars(5), bars(1)}}
	high, _ := f.top(f.Panels[0])
	middle, isAlone := f.top(f.Panels[1])
	low, isLowAlone := f.top(f.Panels[2])
	if high <= 10 || middle != high || isAlone || low >= 2 || !isLowAlone {
		t.Errorf("ends of axes: %v, %v (%v), %v (%v)", high, middle, isAlone, low, isLowAlone)
	}
}

// TestLooks: bars differ in hatch or in brightness, lines in their dashes, so that grey print keeps
// them apart.
func TestLooks(t *testing.T) {
	all := slices.Concat(ours, static)
	grey := func(c color.RGBA) int { return int(color.GrayModel.Convert(c).(color.Gray).Y) }
	for i, a := range all {
		for _, b := range all[:i] {
			if d := grey(a.fill) - grey(b.fill); a.hatch == b.hatch && max(d, -d) < 40 {
				t.Errorf("bars %+v and %+v are alike in grey", a, b)
			}
			if reflect.DeepEqual(a.dashes, b.dashes) {
				t.Errorf("lines %+v and %+v have the same dashes", a, b)
			}
		}
	}
}

// TestLegend: every mark of a figure stands in one legend, once.
func TestLegend(t *testing.T) {
	names, _ := Names()
	for _, name := range names {
		f, err := Read(kept, kept, name)
		expect.OK(t, err)
		known, count := map[string]bool{}, map[string]int{}
		for _, p := range f.Panels {
			for _, e := range slices.Concat(p.legend(known)...) {
				count[fmt.Sprint(e.form, e.role, e.name)]++
			}
			for _, s := range p.Series {
				if s.Role == roleExecuted {
					s.Name = "executed"
				}
				if n := count[fmt.Sprint(p.Form, s.Role, s.Name)]; n != 1 && p.Form != formCells {
					t.Errorf("%s, %s: %q is in legends %d times", name, p.Title, s.Name, n)
				}
			}
		}
	}
}

// TestPaperMarks: two series of the paper have marks that differ, and a lone point of the paper
// shows what lies below it.
func TestPaperMarks(t *testing.T) {
	paper := Series{Role: rolePaper, X: Values{1, 2}, Values: Values{1, 2}}
	two := Panel{Form: formBars, Series: []Series{paper, paper}}.looks()
	alone := Panel{Form: formLines, Series: []Series{{Role: rolePaper, X: Values{75}, Values: Values{1}}}}.looks()
	if two[0].glyph != (diamond{}) || two[1].glyph != (diamond{hollow: true}) || alone[0].glyph != (diamond{hollow: true}) {
		t.Errorf("marks %v and %v, alone %v", two[0].glyph, two[1].glyph, alone[0].glyph)
	}
}

// TestLogTicks: a logarithmic axis of less than two decades has labels between the powers of ten.
func TestLogTicks(t *testing.T) {
	for _, test := range []struct {
		low, high float64
		want      string
	}{{0.25, 9, "0.5 1 2 5"}, {1, 1e7, "1 10 100 1000 10k 100k 1M 10M"}} {
		var labels []string
		for _, tick := range (logTicks{}).Ticks(test.low, test.high) {
			if tick.Label != "" && tick.Value >= test.low && tick.Value <= test.high {
				labels = append(labels, tick.Label)
			}
		}
		if got := strings.Join(labels, " "); got != test.want {
			t.Errorf("from %v to %v: %s, want %s", test.low, test.high, got, test.want)
		}
	}
}

// TestClearOf: a number stands above all marks that would cross it, else on its bar.
func TestClearOf(t *testing.T) {
	for _, test := range []struct {
		name  string
		marks []mark
		want  vg.Length
	}{
		{"none", nil, 100},
		{"inside the bar", []mark{{94, 96}}, 100},
		{"through the number", []mark{{102, 104}}, 104},
		{"above the number", []mark{{120, 122}}, 100},
		{"the second where the first moves it to", []mark{{109, 111}, {102, 104}}, 111},
	} {
		if got := clearOf(100, 6, test.marks); got != test.want {
			t.Errorf("%s: number on %v, want %v", test.name, got, test.want)
		}
	}
}

// TestCells: a table tells a run that is out of memory from a ratio that has no such run.
func TestCells(t *testing.T) {
	p := Panel{Form: formCells, Groups: []string{"a", "b"}, Series: []Series{
		{Name: "uniform", Values: Values{0.99963, missing}}, {Name: "speedup", Values: Values{1.1968, missing}}, {Name: "paper", Role: rolePaper, Values: Values{5.8, 5}}}}
	var cells []string
	for row := range p.Groups {
		for _, s := range p.Series {
			cells = append(cells, p.cell(s, row))
		}
	}
	if got := strings.Join(cells, " "); got != "1.00 1.20 5.8 OOM - 5" {
		t.Errorf("cells %s", got)
	}
}
