package verdict

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"

	"dynmo/src/files"
	"dynmo/src/trace"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"visible": files.Visible}).Parse(pageText))

// heat is a heat map: a table with a coloured cell for each row and column.
type heat struct {
	Columns []column
	Rows    []heatRow
}

type column struct{ Name, Unit string }

type heatRow struct {
	Name  string
	Bad   bool
	Cells []cell
}

// cell is a value in a heat map. Fill is its colour; "" if nothing was measured.
type cell struct {
	Text, Title, Fill, Ink string
	Mark                   string // sign of a bad cell, beside its colour
}

// filled sets the colour of a cell from a speed over the median of its peers. It is orange for 0.5
// and less, white at 1, and blue for 1.5 and more. Colour-blind readers can tell orange from blue.
func (c *cell) filled(ratio float64) {
	deviation := max(-1, min(1, 2*(ratio-1)))
	to := [3]float64{0x1f, 0x77, 0xb4}
	if deviation < 0 {
		to = [3]float64{0xd9, 0x5f, 0x02}
	}
	part := math.Abs(deviation)
	var rgb [3]int
	for i := range rgb {
		rgb[i] = int(255 + part*(to[i]-255))
	}
	c.Fill, c.Ink = fmt.Sprintf("#%02x%02x%02x", rgb[0], rgb[1], rgb[2]), "#111"
}

// Page writes findings as one self-contained page for a browser. It has the summary, the findings that
// are bad or could not be judged, a line for each check, a heat map of devices and checks, the sweep over
// lengths of messages, and a heat map of pairs of nodes.
func Page(w io.Writer, findings []Finding, pairs []Pair, s Summary) error {
	date := ""
	if !s.Measured.IsZero() {
		date = " " + s.Measured.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return pageTemplate.Execute(w, struct {
		Summary
		Date    string
		IsBad   bool
		Busy    string
		Doubted []Finding
		Groups  []group
		Map     *heat
		Sweep   [][]string
		Pairs   *heat
	}{s, date, s.Verdict == slowOrFaulty, busyLine(findings), doubtedFirst(findings),
		grouped(findings), checkMap(findings), sweepTable(findings), pairMap(pairs)})
}

// checkMap returns the heat map of devices and checks, bad devices first.
func checkMap(findings []Finding) *heat {
	h := &heat{}
	medians := map[[3]string]float64{}
	for _, g := range grouped(findings) {
		if g.Values == 0 {
			continue
		}
		medians[[3]string{g.Device, g.Check, g.Model}] = g.Median
		if at := (column{g.Check, g.Unit}); !slices.Contains(h.Columns, at) {
			h.Columns = append(h.Columns, at)
		}
	}
	rows := map[string]int{}
	for _, f := range findings {
		at := slices.IndexFunc(h.Columns, func(c column) bool { return c.Name == f.Check })
		name := f.Node + " " + f.Device
		i, known := rows[name]
		if !known {
			i = len(h.Rows)
			rows[name] = i
			h.Rows = append(h.Rows, heatRow{Name: name, Cells: make([]cell, len(h.Columns))})
		}
		h.Rows[i].Bad = h.Rows[i].Bad || f.State > healthy
		if at >= 0 {
			h.Rows[i].Cells[at] = f.cell(medians[[3]string{f.class(), f.Check, f.Model}])
		}
	}
	h.Rows = slices.DeleteFunc(h.Rows, func(r heatRow) bool {
		return !r.Bad && !slices.ContainsFunc(r.Cells, func(c cell) bool { return c.Title != "" })
	})
	slices.SortStableFunc(h.Rows, func(a, b heatRow) int {
		switch {
		case a.Bad == b.Bad:
			return 0
		case a.Bad:
			return -1
		}
		return 1
	})
	return h
}

func (f Finding) cell(median float64) cell {
	c := cell{Title: fmt.Sprintf("%s: %s %s", f.Name(), f.State, f.Reason)}
	if f.State > healthy || f.State == busy {
		c.Mark = f.State.String()
	}
	if !f.hasValue() {
		c.Text = cmp.Or(c.Mark, "n/a")
		c.Mark = ""
		return c
	}
	c.Text, c.Title = fmt.Sprintf("%.4g", f.Value), fmt.Sprintf("%s: %.5g %s, %s %s", f.Name(), f.Value, f.Unit, f.State, f.Reason)
	if f.direction() != 0 && median > 0 && f.State != busy {
		ratio := f.Value / median
		if f.direction() < 0 {
			ratio = 1 / ratio
		}
		c.filled(ratio)
	}
	return c
}

// pairMap returns the heat map of the bandwidths between nodes; nil without pairs.
func pairMap(pairs []Pair) *heat {
	if len(pairs) == 0 {
		return nil
	}
	var names []string
	var speeds []float64
	for _, p := range pairs {
		names, speeds = append(names, p.A, p.B), append(speeds, p.Bandwidth)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	h := &heat{}
	for _, name := range names {
		h.Columns = append(h.Columns, column{Name: name})
		h.Rows = append(h.Rows, heatRow{Name: name, Cells: make([]cell, len(names))})
	}
	median := trace.Median(speeds)
	for _, p := range pairs {
		c := cell{Text: fmt.Sprintf("%.3g", p.Bandwidth), Title: fmt.Sprintf("%s to %s: %.4g GB/s, %.3g us", p.A, p.B, p.Bandwidth, p.Latency)}
		c.filled(p.Bandwidth / median)
		a, b := slices.Index(names, p.A), slices.Index(names, p.B)
		h.Rows[a].Cells[b], h.Rows[b].Cells[a] = c, c
	}
	return h
}
