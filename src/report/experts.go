package report

import (
	"fmt"
	"math"
	"slices"

	"dynmo/src/kind/moe"
	"dynmo/src/record"
)

// loads is how equal the loads of experts are.
type loads struct {
	Fullest float64 // tokens of the fullest expert over those of the mean one; NaN without any
	Dropped float64 // share of the assignments that are dropped
}

// loadsOf returns the loads of what a layer counted.
func loadsOf(values []int64) loads {
	if len(values) <= moe.CountsFrom {
		return loads{math.NaN(), 0}
	}
	experts, sum := values[moe.CountsFrom:], int64(0)
	for _, tokens := range experts {
		sum += tokens
	}
	dropped := float64(values[1])
	return loads{float64(slices.Max(experts)) * float64(len(experts)) / float64(sum), dropped / (dropped + float64(sum))}
}

// meanLoads returns the mean over the layers with experts, and over steps.
func meanLoads(steps ...record.Metrics) loads {
	var sum loads
	n := 0.0
	for _, m := range steps {
		for _, c := range m.Counts {
			if c.Name != moe.Counts {
				continue
			}
			if l := loadsOf(c.Values); !math.IsNaN(l.Fullest) {
				sum.Fullest, sum.Dropped, n = sum.Fullest+l.Fullest, sum.Dropped+l.Dropped, n+1
			}
		}
	}
	return loads{sum.Fullest / n, sum.Dropped / n}
}

// sentence says what the loads are.
func (l loads) sentence() string {
	s := "the fullest expert of a layer has " + record.Significant(l.Fullest) + " times the mean load"
	if l.Dropped > 0 {
		s += ", " + percentOf(l.Dropped) + " of the assignments are dropped"
	}
	return s
}

// mostExperts is how many experts of a layer the table has columns for.
const mostExperts = 32

// expertTable returns, for each layer with experts, the share of its assignments that each
// of these works on, in the last steps; nil without any.
func (r Run) expertTable() (table [][]string) {
	sums, layers := make(map[string][]int64), r.chain()
	for _, m := range r.Metrics[max(0, len(r.Metrics)-recently):] {
		for _, c := range m.Counts {
			if c.Name != moe.Counts || len(c.Values) <= moe.CountsFrom || !slices.Contains(layers, c.Layer) {
				continue
			}
			experts := c.Values[moe.CountsFrom:]
			if len(sums[c.Layer]) != len(experts) {
				sums[c.Layer] = make([]int64, len(experts))
			}
			for k, tokens := range experts {
				sums[c.Layer][k] += tokens
			}
		}
	}
	for _, layer := range layers {
		experts, all := sums[layer], int64(0)
		if experts == nil {
			continue
		}
		for _, tokens := range experts {
			all += tokens
		}
		head, row := []string{"layer"}, []string{layerLabel(layer)}
		for k, tokens := range experts[:min(len(experts), mostExperts)] {
			head, row = append(head, fmt.Sprint("expert ", k)), append(row, fmt.Sprintf("%.1f", 100*float64(tokens)/float64(max(1, all))))
		}
		if table == nil {
			table = append(table, head)
		}
		table = append(table, row)
	}
	return table
}
