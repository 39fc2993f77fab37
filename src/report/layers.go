package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/model"
)

// mostLayers is how many layers a chart has a curve of.
const mostLayers = 8

// layerCurves is numbers of some layers over steps.
type layerCurves struct {
	names  []string // of the chain
	layers []int    // ascending
	x      []float64
	y      [][]float64 // by layer of layers, then by point of x; NaN: the layer has none
}

// chart draws a curve for each layer, of at most mostLayers that are evenly spread, nil
// if no layer has a number. Where a layer has none its curve is interrupted.
func (l layerCurves) chart(c chart) *chart {
	for i := len(l.layers) - 1; i >= 0; i-- {
		if !slices.ContainsFunc(l.y[i], func(y float64) bool { return !math.IsNaN(y) }) {
			l.layers, l.y = slices.Delete(l.layers, i, i+1), slices.Delete(l.y, i, i+1)
		}
	}
	shown := min(len(l.layers), mostLayers)
	for k := range shown {
		i := k
		if len(l.layers) > mostLayers {
			i = int(math.Round(float64(k*(len(l.layers)-1)) / (mostLayers - 1)))
		}
		n := &curve{Name: layerLabel(l.names[l.layers[i]]), Style: fmt.Sprintf("layer%d", k)}
		n.known(l.x, l.y[i])
		c.Curves = append(c.Curves, n)
	}
	if shown == 0 {
		return nil
	}
	if shown < len(l.layers) {
		c.About += fmt.Sprintf("; %d of %d layers", shown, len(l.layers))
	}
	c.Exact = true
	return &c
}

// known sets the points of x and y whose y is a number. Where others are between, the
// curve is interrupted.
func (c *curve) known(x, y []float64) {
	for begin := 0; begin < len(y); begin++ {
		if math.IsNaN(y[begin]) {
			continue
		}
		end := begin
		for end < len(y) && !math.IsNaN(y[end]) {
			end++
		}
		c.Breaks = append(c.Breaks, len(c.X))
		part := &curve{}
		part.thin(x[begin:end], y[begin:end])
		c.X, c.Y = append(c.X, part.X...), append(c.Y, part.Y...)
		begin = end
	}
}

// layerLabel is the name of a layer where there is little room: "block 3", "exit 0", and
// of half a block "3 attention".
func layerLabel(name string) string {
	if strings.Count(name, ".") == 2 {
		name = strings.TrimPrefix(name, "block.")
	}
	return strings.Replace(name, ".", " ", 1)
}

// chain returns the names of the run's layers.
func (r Run) chain() []string { return model.FromConfig(r.Config).Names() }
