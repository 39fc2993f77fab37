package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/model"
	"dynmo/src/record"
)

// mostLayers is the largest number of curves of layers in a chart.
const mostLayers = 8

// layerCurves is a number of some layers over steps.
type layerCurves struct {
	names  []string // of the chain
	layers []int    // ascending
	steps  []int
	y      [][]record.Float // by entry of layers, then by step; NaN: no number
}

// chart adds a curve to c for each layer that has a number: at most mostLayers layers, evenly
// spread. It returns nil if there is none.
func (l layerCurves) chart(c chart) *chart {
	for i, layer := range l.layers {
		if slices.ContainsFunc(l.y[i], finite) {
			c.Curves = append(c.Curves, curve{Name: layerLabel(l.names[layer]), Y: l.y[i]})
		}
	}
	if c.Curves == nil {
		return nil
	}
	if all := len(c.Curves); all > mostLayers {
		for k := range mostLayers {
			c.Curves[k] = c.Curves[int(math.Round(float64(k*(all-1))/(mostLayers-1)))]
		}
		c.Curves = c.Curves[:mostLayers]
		c.About += fmt.Sprintf("; %d of %d layers", mostLayers, all)
	}
	for k := range c.Curves {
		c.Curves[k].Style = fmt.Sprintf("layer%d", k)
	}
	c.Steps = l.steps
	return &c
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
