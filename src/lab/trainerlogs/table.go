package trainerlogs

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/cost"
	"dynmo/src/files"
	"dynmo/src/lab/layouts"
)

// Bounds of the numbers of a layer or a stage: far above those of any model.
const (
	mostMilliseconds = 1e9
	mostBytes        = 1e15
)

// columns are those of a table of layers. The first three are required.
var columns = []string{"name", "forward_ms", "backward_ms", "weight_ms", "parameter_bytes", "activation_bytes"}

// readCSV reads a table with a line for each layer.
func readCSV(path string, r Run) (Costs, error) {
	f, err := files.Open(path, files.Loads)
	if err != nil {
		return Costs{}, err
	}
	defer f.Close()
	text, err := plain(f)
	if err != nil {
		return Costs{}, fmt.Errorf("%s: %w", path, err)
	}
	in := csv.NewReader(text)
	in.TrimLeadingSpace, in.FieldsPerRecord = true, -1
	header, err := in.Read()
	if errors.Is(err, io.EOF) {
		err = errors.New("empty")
	} else if err != nil {
		err = errors.New("no table")
	}
	if err == nil {
		err = checkHeader(header)
	}
	if err != nil {
		return Costs{}, fmt.Errorf("%s: %w, want the header %s[,%s]", path, err, strings.Join(columns[:3], ","), strings.Join(columns[3:], ","))
	}
	var layers []cost.Layer
	for {
		cells, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if wrong, is := errors.AsType[*csv.ParseError](err); is {
			return Costs{}, fmt.Errorf("%s:%d: a quote out of place, want cells with commas between them", path, wrong.StartLine)
		}
		if err != nil {
			return Costs{}, fmt.Errorf("%s: %w", path, err)
		}
		layer, err := layerOf(header, cells)
		if err == nil && len(layers) == mostLayers {
			err = fmt.Errorf("more than %d layers", mostLayers)
		}
		if line, _ := in.FieldPos(0); err != nil {
			return Costs{}, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		layers = append(layers, layer)
	}
	c, err := direct(layers, r)
	if err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	if !slices.Contains(header, "weight_ms") {
		c.Notes = append(c.Notes, "no column weight_ms: half of the backward counts as for inputs, half as for weights")
	}
	return c, nil
}

// checkHeader refuses columns that are missing, not known or there twice.
func checkHeader(header []string) error {
	for i, name := range header {
		if !slices.Contains(columns, name) || slices.Contains(header[:i], name) {
			return fmt.Errorf("column %.40q", name)
		}
	}
	for _, name := range columns[:3] {
		if !slices.Contains(header, name) {
			return fmt.Errorf("no column %s", name)
		}
	}
	return nil
}

// layerOf reads a line of the table.
func layerOf(header, cells []string) (cost.Layer, error) {
	layer := cost.Layer{}
	if len(cells) != len(header) {
		return layer, fmt.Errorf("%d cells, want %d as in the header", len(cells), len(header))
	}
	x := map[string]float64{"weight_ms": math.NaN()}
	for i, name := range header {
		if name == "name" {
			layer.Name = cells[i]
			continue
		}
		number, err := strconv.ParseFloat(strings.TrimSpace(cells[i]), 64)
		most := mostMilliseconds
		if strings.HasSuffix(name, "_bytes") {
			most = mostBytes
		}
		if err != nil || !(number >= 0 && number <= most) {
			return layer, fmt.Errorf("%s %.40q, want a number from 0 to %g (a backward that was not measured takes about twice the forward)", name, cells[i], most)
		}
		x[name] = number
	}
	b, w := x["backward_ms"], x["weight_ms"]
	switch {
	case math.IsNaN(w) && strings.HasPrefix(layer.Name, names[embedding]):
		w = b
	case math.IsNaN(w):
		w = b / 2
	case w > b:
		return layer, fmt.Errorf("weight_ms %v above backward_ms %v, want the whole backward and the part for weights", w, b)
	}
	layer.Bytes.Parameters, layer.Bytes.Activations = int64(x["parameter_bytes"]), int64(x["activation_bytes"])
	return layer.WithSeconds(cost.Stage{Forward: x["forward_ms"] / 1000, Input: (b - w) / 1000, Weight: w / 1000}), nil
}

// direct returns the costs of layers that were measured one by one.
func direct(layers []cost.Layer, r Run) (Costs, error) {
	c := Costs{Table: cost.Table{Clock: "wall", Layers: layers}}
	if len(layers) == 0 {
		return c, errors.New("no layer, want one in each line")
	}
	if _, err := layouts.NewChain(layers); err != nil {
		return c, err
	}
	if err := (cost.Phase{Table: c.Table}).Check(len(layers)); err != nil {
		return c, err
	}
	if !slices.ContainsFunc(layers, func(l cost.Layer) bool { return l.BackwardInput+l.BackwardWeight > 0 }) {
		return c, errors.New("every backward is 0, want the times of a training step")
	}
	c.Kinds = KindsOf(layers)
	for i := range c.Kinds {
		c.Kinds[i].Samples = c.Kinds[i].Layers
	}
	return c, c.agree(r)
}

// KindsOf returns the kinds of some layers in the order of their first layers, with mean seconds and without
// samples.
func KindsOf(layers []cost.Layer) (list []Kind) {
	for _, layer := range layers {
		kind := layouts.Kind(layer.Name)
		i := slices.IndexFunc(list, func(k Kind) bool { return k.Name == kind })
		if i < 0 {
			i = len(list)
			list = append(list, Kind{Name: kind, Deviation: math.NaN(), Residual: math.NaN()})
		}
		list[i].Layers++
		list[i].Seconds = list[i].Seconds.Plus(layer.Stage())
	}
	for i := range list {
		list[i].Seconds = list[i].Seconds.Scale(1 / float64(list[i].Layers))
	}
	return list
}

// agree returns an error if the layers are not those of the layout.
func (c Costs) agree(r Run) error {
	if r.Layout == "" {
		return nil
	}
	s, err := r.shape()
	if err != nil {
		return err
	}
	for k, n := range s.total() {
		if kind := slices.IndexFunc(c.Kinds, func(x Kind) bool { return x.Name == names[k] }); k > embedding && k < kinds-1 {
			got := 0
			if kind >= 0 {
				got = c.Kinds[kind].Layers
			}
			if got != n {
				return fmt.Errorf("%d layers %s, and --layout has %d %c", got, names[k], n, letters[k])
			}
		}
	}
	return nil
}
