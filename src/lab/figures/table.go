package figures

import (
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// caption returns the sentences that stand below the picture.
func (f Figure) caption() []string {
	seeds := ""
	if f.Facts.Seeds > 1 {
		seeds = fmt.Sprintf("; means of %d seeds, bars of 95 %% intervals", f.Facts.Seeds)
	}
	assumed := 0
	for _, w := range f.Facts.Workloads {
		if strings.Contains(w, "ASSUMED") {
			assumed++
		}
	}
	notes := slices.Clone(f.Notes)
	if slices.ContainsFunc(f.Panels, Panel.isShortOfMemory) {
		notes = append(notes, "OOM: out of memory. -: no ratio, since one of its runs is out of memory.")
	}
	return append(notes,
		fmt.Sprintf("clock=%s; costs: %s; mesh: %s, whole layers: %s; schedule: %s%s.", f.Facts.Clock, f.Facts.Costs, f.Facts.Mesh, f.Facts.Grain, f.Facts.Schedule, seeds),
		fmt.Sprintf("%s.md: tables, the command and the workloads (%d, ASSUMED: %d).", f.Name, len(f.Facts.Workloads), assumed))
}

// number writes a value with three digits, and a missing one as "-".
func number(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	if math.Abs(x) >= 999.5 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// padded writes a value with three digits, the last ones perhaps zeros.
func padded(x float64) string {
	text := number(x)
	if rounded, _ := strconv.ParseFloat(text, 64); math.Abs(rounded) >= 0.001 && math.Abs(rounded) < 100 {
		return strconv.FormatFloat(rounded, 'f', 2-int(math.Floor(math.Log10(math.Abs(rounded)))), 64)
	}
	return text
}

// isShort reports whether no value of the series has more than three digits.
func (s Series) isShort() bool {
	return !slices.ContainsFunc(s.Values, func(x float64) bool {
		rounded, _ := strconv.ParseFloat(number(x), 64)
		return !math.IsNaN(x) && rounded != x
	})
}

// markdown returns the table of the figure, with its caption.
func (f Figure) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", f.Title)
	for _, p := range f.Panels {
		if p.Form == formTimeline {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| %s |", p.Title, p.Y, p.X)
		for _, s := range p.Series {
			fmt.Fprintf(&b, " %s |", s.Name)
		}
		b.WriteString("\n|---|" + strings.Repeat("---:|", len(p.Series)) + "\n")
		for i, row := range p.rows() {
			fmt.Fprintf(&b, "| %s |", row)
			for _, s := range p.Series {
				fmt.Fprintf(&b, " %s |", p.cell(s, i))
			}
			b.WriteString("\n")
		}
	}
	caption := f.caption()
	caption[len(caption)-1] = "Workload: " + strings.Join(f.Facts.Workloads, "; ") + "."
	for _, line := range slices.Concat(caption, []string{"Command: " + f.Facts.Command}, f.executed) {
		fmt.Fprintf(&b, "\n%s\n", line)
	}
	return b.String()
}

// rows returns the heads of the rows of a panel's table. formLines have a row for each x that any
// series has.
func (p Panel) rows() []string {
	if p.Form != formLines {
		return p.Groups
	}
	var rows []string
	for _, x := range p.allX() {
		rows = append(rows, number(x))
	}
	return rows
}

// allX returns the values on the horizontal axis of lines, ascending.
func (p Panel) allX() (all []float64) {
	for _, s := range p.Series {
		all = append(all, s.X...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// cell returns a value as a table has it, with half of its interval. A run of formCells without a
// number is out of memory.
func (p Panel) cell(s Series, row int) string {
	if p.Form == formLines {
		x := p.allX()[row]
		for row = len(s.X) - 1; row >= 0 && s.X[row] != x; row-- { // the last of equal ones, where a line steps
		}
		if row < 0 {
			return "-"
		}
	}
	write := padded
	if s.isShort() {
		write = number
	}
	text := write(s.Values[row])
	switch {
	case len(s.Low) > 0 && s.High[row] > s.Low[row]:
		return text + " ± " + strconv.FormatFloat((s.High[row]-s.Low[row])/2, 'g', 2, 64)
	case math.IsNaN(s.Values[row]) && p.Form == formCells && !isRatio(s.Name):
		return "OOM"
	}
	return text
}

// isShortOfMemory reports whether a run of a table has no number.
func (p Panel) isShortOfMemory() bool {
	return p.Form == formCells && slices.ContainsFunc(p.Series, func(s Series) bool { return slices.ContainsFunc(s.Values, math.IsNaN) })
}

// isRatio reports whether a column of cells is over another column.
func isRatio(column string) bool { return strings.HasSuffix(column, "speedup") || column == "headless" }

// csv returns all values, a row each.
func (f Figure) csv() string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	write := func(fields ...string) { _ = w.Write(fields) } // a strings.Builder has no errors
	text := func(x float64) string {
		if math.IsNaN(x) {
			return ""
		}
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	write("figure", "panel", "row", "series", "role", "value", "low", "high", "seeds", "clock", "costs")
	for _, p := range f.Panels {
		for _, s := range p.Series {
			for i, x := range s.Values {
				row, low, high := "", "", ""
				switch {
				case p.Form == formTimeline:
					row, low, high = fmt.Sprint("stage ", s.Rows[i]), text(s.X[i]), text(x)
				case p.Form == formLines:
					row = text(s.X[i])
				default:
					row = p.Groups[i]
				}
				if len(s.Low) > 0 && f.Facts.Seeds > 1 { // one run has no interval
					low, high = text(s.Low[i]), text(s.High[i])
				}
				write(f.Name, p.Title, row, s.Name, string(s.Role), text(x), low, high, fmt.Sprint(f.Facts.Seeds), f.Facts.Clock, f.Facts.Costs)
			}
		}
	}
	w.Flush()
	return b.String()
}
