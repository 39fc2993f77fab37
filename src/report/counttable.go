package report

import (
	"slices"

	"dynmo/src/dynamic"
)

// countTable returns what layers counted in the last steps, a row for each, in the columns of
// their kind; nil without any.
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
