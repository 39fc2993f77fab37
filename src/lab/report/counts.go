package report

import (
	"fmt"
	"maps"
	"slices"

	"dynmo/src/dynamic"
	"dynmo/src/record"
)

// countCharts returns the charts of the counts of layers, and of the plasticity on which freezing
// decides.
func (r Run) countCharts() (list []*chart) {
	for _, counts := range dynamic.AllCounts(r.Config) {
		for _, c := range counts.Charts {
			if n := r.counted(counts, c).chart(chart{Title: c.Title, Unit: c.Unit, About: c.About, FromZero: c.FromZero}); n != nil {
				list = append(list, n)
			}
		}
	}
	if n := r.plasticity(); n != nil {
		list = append(list, n)
	}
	return list
}

// counted returns the curves of a number that is computed from the counts of layers.
func (r Run) counted(counts dynamic.Counts, number dynamic.Chart) layerCurves {
	l := layerCurves{names: r.chain()}
	row := make(map[string]int) // of y, by name of the layer
	for i, m := range r.Metrics {
		l.steps = append(l.steps, m.Step)
		for _, c := range m.Counts {
			layer := slices.Index(l.names, c.Layer)
			if c.Name != counts.Name || layer < 0 {
				continue
			}
			k, ok := row[c.Layer]
			if !ok {
				k, row[c.Layer] = len(l.y), len(l.y)
				l.layers, l.y = append(l.layers, layer), append(l.y, gaps(len(r.Metrics)))
			}
			l.y[k][i] = record.Float(number.Of(counts.Read(c.Values), m.Size(r.Config)))
		}
	}
	return l
}

// plasticity returns the chart of the plasticity of evaluated layers, over the steps with an
// evaluation. It is nil if there was none.
func (r Run) plasticity() *chart {
	l := layerCurves{names: r.chain()}
	seen, seconds := make(map[int]bool), 0.0
	var steps []record.Metrics
	for _, m := range r.Metrics {
		if len(m.Plasticity) == 0 {
			continue
		}
		steps, seconds = append(steps, m), seconds+float64(m.EvaluationSeconds)
		l.steps = append(l.steps, m.Step)
		for layer := range m.Plasticity {
			seen[layer] = layer >= 0 && layer < len(l.names)
		}
	}
	for _, layer := range slices.Sorted(maps.Keys(seen)) {
		if !seen[layer] {
			continue
		}
		row := gaps(len(steps))
		for i, m := range steps {
			if m.Plasticity[layer] > 0 { // a logarithmic axis has no 0
				row[i] = record.Float(m.Plasticity[layer])
			}
		}
		l.layers, l.y = append(l.layers, layer), append(l.y, row)
	}
	if len(steps) == 0 {
		return nil
	}
	return l.chart(chart{Title: "plasticity", Log: true, About: fmt.Sprintf(
		"how far a layer's output has come since its reference; found out in %d steps, %s ms each over all stages",
		len(steps), milliseconds(seconds/float64(len(steps))))})
}

// countTable returns a table of the counts of layers in the last steps. It has a row for each layer
// and the columns of the kind. It is nil if no layer counts anything.
func (r Run) countTable() (table [][]string) {
	sums, layers := make(map[string][]int64), r.chain()
	for _, counts := range dynamic.AllCounts(r.Config) {
		if counts.Columns == nil {
			continue
		}
		for _, m := range r.Metrics[max(0, len(r.Metrics)-recently):] {
			for _, c := range m.Counts {
				if c.Name != counts.Name || !slices.Contains(layers, c.Layer) {
					continue
				}
				if len(sums[c.Layer]) != len(c.Values) {
					sums[c.Layer] = make([]int64, len(c.Values))
				}
				for k, n := range c.Values {
					sums[c.Layer][k] += n
				}
			}
		}
		for _, layer := range layers {
			head, row := counts.Columns(counts.Read(sums[layer]))
			if row == nil {
				continue
			}
			if table == nil {
				table = append(table, append([]string{"layer"}, head...))
			}
			table = append(table, append([]string{layerLabel(layer)}, row...))
		}
	}
	return table
}
