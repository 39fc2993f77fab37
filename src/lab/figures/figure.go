package figures

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"dynmo/src/files"
)

// Figure is a figure or table with its numbers and with what made them.
type Figure struct {
	Format int      `json:"format"` // of this file: 1
	Name   string   `json:"name"`   // of its files, without their endings
	Title  string   `json:"title"`
	Notes  []string `json:"notes"` // what a reader must know to read the numbers, a sentence or more each
	Facts  Facts    `json:"facts"`
	Panels []Panel  `json:"panels"`

	executed []string // commands and origins of executed runs
}

// Facts say where the numbers of a figure are from.
type Facts struct {
	Clock     string   `json:"clock"`
	Costs     string   `json:"costs"` // cost table
	Workloads []string `json:"workloads"`
	Mesh      string   `json:"mesh"`
	Grain     string   `json:"grain"` // of blocks: block or half
	Schedule  string   `json:"schedule"`
	Seeds     int      `json:"seeds"`
	Command   string   `json:"command"`
	Revision  string   `json:"revision"`
	// Asked are the options that made the numbers, by their flags.
	Asked map[string]string `json:"asked"`
}

// Panel is one diagram of a figure, and one part of its table.
type Panel struct {
	Title  string   `json:"title"`
	Form   Form     `json:"form"`
	X      string   `json:"x"`                // what the groups or the horizontal axis are
	Y      string   `json:"y"`                // what the values are, with their unit
	Groups []string `json:"groups,omitempty"` // of bars
	Log    string   `json:"log,omitempty"`    // the axes of lines that are logarithmic: x, y or xy
	End    float64  `json:"end,omitempty"`    // of a timeline's axis; 0: its last span
	Series []Series `json:"series"`
}

// Form is how a panel is drawn.
type Form string

const (
	formBars     Form = "bars"     // a group of bars for each of Groups
	formLines    Form = "lines"    // a line for each series, over X
	formTimeline Form = "timeline" // from X to Values, in the rows of stages
	formCells    Form = "cells"    // nothing is drawn: rows of a table
)

// Series is values under one name.
type Series struct {
	Name   string `json:"name"`
	Role   Role   `json:"role,omitempty"`
	X      Values `json:"x,omitempty"`
	Values Values `json:"values"`
	Low    Values `json:"low,omitempty"` // ends of the 95 % intervals
	High   Values `json:"high,omitempty"`
	Rows   []int  `json:"rows,omitempty"` // of a timeline: the stage of each span
}

// Role is what a series is beside the others.
type Role string

const (
	roleOurs    Role = ""
	roleStatic  Role = "static"  // on cuts that never move
	rolePaper   Role = "paper"   // what the paper says
	roleCeiling Role = "ceiling" // what no balancer can exceed

	roleExecuted Role = "executed" // points over the bars of our series, the first over the first
)

// Values are numbers. A missing one is NaN here and null in JSON. JSON has them with five digits.
type Values []float64

// MarshalJSON writes missing values as null.
func (v Values) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i, x := range v {
		if i > 0 {
			out = append(out, ',')
		}
		if math.IsNaN(x) || math.IsInf(x, 0) {
			out = append(out, "null"...)
		} else {
			out = strconv.AppendFloat(out, x, 'g', 5, 64)
		}
	}
	return append(out, ']'), nil
}

// UnmarshalJSON reads null as a missing value.
func (v *Values) UnmarshalJSON(text []byte) error {
	var list []*float64
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	*v = make(Values, len(list))
	for i, x := range list {
		if (*v)[i] = math.NaN(); x != nil {
			(*v)[i] = *x
		}
	}
	return nil
}

// format is that of the files that Write makes.
const format = 1

// Read reads the figure of a name from the folder that Write was given, with a panel of executed
// runs where the folder of results has some. The figure has no panels if it cannot be drawn. It can
// be drawn where an error names a wrong file of executed runs.
func Read(made, results, name string) (Figure, error) {
	var f Figure
	path := filepath.Join(made, "figures", name+".json")
	text, err := files.Read(path, files.Loads)
	if errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("%s: no result is kept, --remake simulates one, and --remake --keep keeps it", path)
	}
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return Figure{}, fmt.Errorf("%s: %w", path, err)
	}
	if err := f.check(name); err != nil {
		return Figure{}, fmt.Errorf("%s: %w", path, err)
	}
	return f, f.addExecuted(results)
}

// Write writes the numbers of the figure into the folder figures of dir.
func (f Figure) Write(dir string) error {
	text, err := json.Marshal(f)
	if err != nil {
		return err
	}
	for _, before := range []string{`{"title":`, `{"name":`, `"facts":`, `"notes":`} { // a panel, a series a line
		text = bytes.ReplaceAll(text, []byte(before), []byte("\n"+before))
	}
	dir = filepath.Join(dir, "figures")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return files.WriteText(filepath.Join(dir, f.Name+".json"), string(text)+"\n")
}

// Matches refuses numbers that were made with another value of a flag.
func (f Figure) Matches(flag, value string) error {
	if made := f.Facts.Asked[flag]; made != value {
		return fmt.Errorf("%s: the kept result is of --%s %q, not %q: --remake simulates it anew", f.Name, flag, made, value)
	}
	return nil
}

// check refuses what is no complete figure of the name. The error names the field.
func (f Figure) check(name string) error {
	switch {
	case f.Format != format:
		return fmt.Errorf("format: %d, want %d", f.Format, format)
	case f.Name != name:
		return fmt.Errorf("name: %q, want %q", f.Name, name)
	case len(f.Panels) == 0:
		return errors.New("panels: none, want one or more: the study did not end")
	case f.Facts.Clock == "":
		return errors.New("facts: no clock, want the one that made the numbers")
	}
	for i, p := range f.Panels {
		if len(p.Series) == 0 {
			return fmt.Errorf("panels[%d].series: none, want one or more", i)
		}
		for j, s := range p.Series {
			n := len(s.X)
			switch p.Form {
			case formBars, formCells:
				n = len(p.Groups)
			case formTimeline:
				if len(s.Rows) != n {
					return fmt.Errorf("panels[%d].series[%d].rows: %d, want %d", i, j, len(s.Rows), n)
				}
			case formLines:
			default:
				return fmt.Errorf("panels[%d].form: %q, want bars, lines, timeline or cells", i, p.Form)
			}
			if len(s.Values) != n || len(s.Low) != len(s.High) || len(s.Low) != 0 && len(s.Low) != n {
				return fmt.Errorf("panels[%d].series[%d]: %d values, %d and %d ends of intervals, want %d", i, j, len(s.Values), len(s.Low), len(s.High), n)
			}
		}
	}
	return nil
}
