package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/model"
)

// mostLayers is the largest number of curves of layers in a chart.
const mostLayers = 8

// layerCurves is a number of some layers over steps.
type layerCurves struct {
	names  []string // of the chain
	layers []int    // ascending
	x      []float64
	y      [][]float64 // by entry of layers, then by point of x; NaN: no number
}

// chart draws a curve for each layer that has a number: at most mostLayers layers, evenly spread.
// It returns nil if there is none. A curve is interrupted where a layer has no number.
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

// known sets the points of x and y whose y is a number. The curve is interrupted where other points
// lie between them.
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

// layerLabel returns a short name of a layer: "block 3", "exit 0", and "3 attention" for half a
// block.
func layerLabel(name string) string {
	if strings.Count(name, ".") == 2 {
		name = strings.TrimPrefix(name, "block.")
	}
	return strings.Replace(name, ".", " ", 1)
}

// chain returns the names of the run's layers.
func (r Run) chain() []string { return model.FromConfig(r.Config).Names() }
