package verdict

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"dynmo/src/files"
)

// Bound is the speed that a check should reach on devices of one model. Least is a lower bound for
// values where more is better; Most is an upper bound for the others.
type Bound struct {
	Model  string  `toml:"model"` // name of the product, or the beginning of the name; "" for messages between nodes
	Check  string  `toml:"check"`
	Least  float64 `toml:"least,omitzero"`
	Most   float64 `toml:"most,omitzero"`
	Unit   string  `toml:"unit"`
	Clock  string  `toml:"clock,omitempty"` // Virtual; "" for the wall clock
	Source string  `toml:"source"`          // who measured or published the numbers behind the bound
}

// Reference is the list of bounds in a file.
type Reference struct {
	Bounds []Bound `toml:"bound"`
	path   string
}

// ReadReference reads a reference file. The error names file, bound and field.
func ReadReference(path string) (*Reference, error) {
	text, err := files.Read(path, files.Settings)
	if err != nil {
		return nil, err
	}
	r := &Reference{path: path}
	if err := files.TOML(path, text, r); err != nil {
		return nil, err
	}
	for i, b := range r.Bounds {
		switch wrong := fmt.Sprintf("%s: bound %d (%s, %s): ", path, i+1, b.Model, b.Check); {
		case b.Model == "" && !strings.HasPrefix(b.Check, "mpi_") || b.Check == "":
			return nil, fmt.Errorf("%swants a model and a check", wrong)
		case b.Least < 0 || b.Most < 0 || (b.Least > 0) == (b.Most > 0):
			return nil, fmt.Errorf("%sleast = %g, most = %g: want one of them, above 0", wrong, b.Least, b.Most)
		case Row{Unit: b.Unit}.direction() > 0 && b.Most > 0, Row{Unit: b.Unit}.direction() < 0 && b.Least > 0:
			return nil, fmt.Errorf("%sunit %q: want least for rates, most for times", wrong, b.Unit)
		case Row{Unit: b.Unit}.direction() == 0:
			return nil, fmt.Errorf("%sunit %q: want GFLOP/s, TFLOP/s, GB/s, MHz, links, lanes, GPUs or us", wrong, b.Unit)
		case b.Clock != "" && b.Clock != Virtual:
			return nil, fmt.Errorf("%sclock %q: want %q, or no clock for the wall clock", wrong, b.Clock, Virtual)
		case b.misspelt() != "":
			return nil, fmt.Errorf("%s%s", wrong, b.misspelt())
		}
	}
	if len(r.Bounds) == 0 {
		return nil, fmt.Errorf("%s: has no [[bound]]", path)
	}
	return r, nil
}

// bound returns the bound of a row, nil if there is none. It prefers a bound of the row's clock.
func (r *Reference) bound(row Row) *Bound {
	if r == nil {
		return nil
	}
	var other *Bound
	for i, b := range r.Bounds {
		if b.Check == row.Check && strings.HasPrefix(row.Model, b.Model) {
			if b.Clock == row.Clock {
				return &r.Bounds[i]
			}
			other = cmp.Or(other, &r.Bounds[i])
		}
	}
	return other
}

// Strangers returns the models of rows without any bound in the reference. Such a reference may
// belong to another machine.
func (r *Reference) Strangers(rows []Row) []string {
	var models []string
	for _, row := range rows {
		known := slices.ContainsFunc(r.Bounds, func(b Bound) bool { return b.Model != "" && strings.HasPrefix(row.Model, b.Model) })
		if !known && row.Model != "" && !slices.Contains(models, row.Model) {
			models = append(models, row.Model)
		}
	}
	return models
}

// judge returns the state of a row against its bound; unjudged without a bound.
func (r *Reference) judge(row Row) (State, string) {
	b := r.bound(row)
	switch {
	case b == nil || row.direction() == 0 || row.Sweep != nil:
		return unjudged, ""
	case b.Clock != row.Clock:
		return unjudged, fmt.Sprintf("measured with --clock %s, and the bound of %s is for --clock %s", cmp.Or(row.Clock, "wall"), r.path, cmp.Or(b.Clock, "wall"))
	case b.Unit != row.Unit:
		return unjudged, fmt.Sprintf("%s has a bound in %s", r.path, b.Unit)
	case row.Value < b.Least:
		return slow, fmt.Sprintf("%.3g < %.3g %s of the reference", row.Value, b.Least, row.Unit)
	case b.Most > 0 && row.Value > b.Most:
		return slow, fmt.Sprintf("%.3g > %.3g %s of the reference", row.Value, b.Most, row.Unit)
	}
	return healthy, ""
}

// Measure makes a reference from rows. A bound is, for each check and model, the median speed less
// an allowance. The allowance is the lack of a slow device, or outlier times the spread if that is
// more. source names the place of the measurement.
func Measure(rows []Row, source string) *Reference {
	groups := map[[3]string][]Row{}
	for _, r := range rows {
		if r.comparable() {
			key := [3]string{r.Model, r.Check, r.Clock}
			groups[key] = append(groups[key], r)
		}
	}
	reference := &Reference{}
	for key, list := range groups {
		speeds := make([]float64, len(list))
		for i, r := range list {
			speeds[i] = r.speed()
		}
		median, spread := typical(speeds, list[0].lack())
		least := median - outlier*spread
		if list[0].isCount() {
			least = median
		}
		if least <= 0 { // the nodes differ too much for a bound
			continue
		}
		b := Bound{Model: key[0], Check: key[1], Unit: list[0].Unit, Clock: key[2], Source: source}
		if list[0].direction() > 0 {
			b.Least = least
		} else {
			b.Most = 1 / least
		}
		reference.Bounds = append(reference.Bounds, b)
	}
	slices.SortFunc(reference.Bounds, func(a, b Bound) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Check, b.Check), cmp.Compare(a.Clock, b.Clock))
	})
	return reference
}

// Allowance says how a bound follows from what was measured.
var Allowance = fmt.Sprintf("A bound is %g of the median speed that was measured (files: %g), less if devices differ much, and all of a count.", 1-slowBy, 1-slowFilesBy)

// Write writes a reference file.
func (r *Reference) Write(w io.Writer) error {
	fmt.Fprintln(w, "# What checks should reach on devices of a model. dynmo bench node --reference reads it.")
	fmt.Fprintln(w, "#", Allowance)
	return toml.NewEncoder(w).Encode(r)
}
