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

// sumCounts adds the counts of a step up, by layer of the chain and name.
func sumCounts(counts []cost.Count, layers []cost.Layer) (list []LayerCounts) {
	at := make(map[[2]string]int)
	for _, c := range counts {
		key := [2]string{layers[c.Layer].Name, c.Name}
		i, ok := at[key]
		if !ok {
			i, at[key] = len(list), len(list)
			list = append(list, LayerCounts{key[0], key[1], make([]int64, len(c.Values))})
		}
		for k, v := range c.Values {
			list[i].Values[k] += v
		}
	}
	slices.SortStableFunc(list, func(a, b LayerCounts) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
