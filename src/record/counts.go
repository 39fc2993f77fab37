package record

import (
	"cmp"
	"slices"

	"dynmo/src/cost"
)

// LayerCounts is what a layer counted in a step: as tokens that left at an exit.
// Values are summed over the step's microbatches.
type LayerCounts struct {
	Layer  string  `json:"layer"`
	Name   string  `json:"name"`
	Values []int64 `json:"values"`
}

// layerCounts returns the counts of a step by name and layer of the chain.
func layerCounts(counts []cost.CountSum, layers []cost.Layer) (list []LayerCounts) {
	for _, c := range counts {
		list = append(list, LayerCounts{layers[c.Layer].Name, c.Name, c.Values})
	}
	slices.SortStableFunc(list, func(a, b LayerCounts) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
