package report

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"dynmo/src/config"
	"dynmo/src/kind/exit"
	"dynmo/src/kind/mod"
	"dynmo/src/kind/moe"
	"dynmo/src/record"
)

// countCharts returns what exits, routed blocks and experts counted, and the plasticity that
// freezing goes by.
func (r Run) countCharts() (list []*chart) {
	nan := math.NaN()
	perCent := func(part, whole int64) float64 {
		if whole == 0 {
			return nan
		}
		return 100 * float64(part) / float64(whole)
	}
	all := func(m record.Metrics) int64 { return int64(m.BatchSize * r.Config.Model.Sequence) }
	for _, c := range []struct {
		counts string // name of the counts
		values int    // how many of them are wanted
		chart  chart
		of     func(m record.Metrics, values []int64) float64
	}{
		{exit.Counts, 2, chart{Title: "tokens that leave", Unit: "%", About: "of all tokens of the step, by exit", FromZero: true},
			func(m record.Metrics, v []int64) float64 { return perCent(v[1], all(m)) }},
		{exit.Counts, 3, chart{Title: "right when they leave", Unit: "%", About: "of the tokens that leave at an exit, those whose target is the likeliest there", FromZero: true},
			func(_ record.Metrics, v []int64) float64 { return perCent(v[2], v[1]) }},
		{exit.Around, 1, chart{Title: "thresholds of exits", About: "confidence above which a token leaves, by exit", FromZero: true},
			func(m record.Metrics, v []int64) float64 {
				microbatches := max(1, m.BatchSize/r.Config.Parallel.MicrobatchSize)
				if m.Microbatches > 0 {
					microbatches = microbatches * m.Microbatches / r.Config.Parallel.Microbatches
				}
				return float64(v[0]) / exit.ThresholdUnit / float64(microbatches)
			}},
		{mod.Counts, 2, chart{Title: "tokens taken", Unit: "%", About: "by routed blocks, of the tokens that come to them", FromZero: true},
			func(_ record.Metrics, v []int64) float64 { return perCent(v[1], v[0]) }},
		{mod.Counts, 3, chart{Title: "foretold rightly", Unit: "%", About: r.foretells()},
			func(_ record.Metrics, v []int64) float64 { return perCent(v[2], v[0]) }},
		{moe.Counts, moe.CountsFrom + 1, chart{Title: "fullest expert", About: "tokens of a layer's fullest expert over those of its mean one, of a step", FromZero: true},
			func(_ record.Metrics, v []int64) float64 { return loadsOf(v).Fullest }},
		{moe.Counts, moe.CountsFrom + 1, chart{Title: "dropped assignments", Unit: "%", About: "of tokens to experts whose capacity is used up", FromZero: true},
			func(_ record.Metrics, v []int64) float64 {
				if config.Of[moe.Settings](r.Config).Capacity == 0 {
					return nan
				}
				return 100 * loadsOf(v).Dropped
			}},
	} {
		if n := r.counted(c.counts, c.values, c.of).chart(c.chart); n != nil {
			list = append(list, n)
		}
	}
	if n := r.plasticity(); n != nil {
		list = append(list, n)
	}
	return list
}

// foretells says what is foretold of tokens, and by what.
func (r Run) foretells() string {
	by := "the router's sigmoid above 1/2"
	if config.Of[mod.Settings](r.Config).Route == "predictor" {
		by = "the predictor"
	}
	return "tokens of which " + by + " says whether they are among the first of their sequence"
}

// counted returns a number of what layers counted under a name, so many values or more.
func (r Run) counted(name string, values int, of func(record.Metrics, []int64) float64) layerCurves {
	l := layerCurves{names: r.chain()}
	row := make(map[string]int) // of y, by name of the layer
	for i, m := range r.Metrics {
		l.x = append(l.x, float64(m.Step))
		for _, c := range m.Counts {
			layer := slices.Index(l.names, c.Layer)
			if c.Name != name || layer < 0 || len(c.Values) < values {
				continue
			}
			k, ok := row[c.Layer]
			if !ok {
				k, row[c.Layer] = len(l.y), len(l.y)
				l.layers, l.y = append(l.layers, layer), append(l.y, slices.Repeat([]float64{math.NaN()}, len(r.Metrics)))
			}
			l.y[k][i] = of(m, c.Values)
		}
	}
	return l
}

// plasticity returns that of the layers that were evaluated, over the steps in which any
// was, nil if none ever was.
func (r Run) plasticity() *chart {
	l := layerCurves{names: r.chain()}
	seen, seconds := make(map[int]bool), 0.0
	var steps []record.Metrics
	for _, m := range r.Metrics {
		if len(m.Plasticity) == 0 {
			continue
		}
		steps, seconds = append(steps, m), seconds+float64(m.EvaluationSeconds)
		l.x = append(l.x, float64(m.Step))
		for layer := range m.Plasticity {
			seen[layer] = layer >= 0 && layer < len(l.names)
		}
	}
	for _, layer := range slices.Sorted(maps.Keys(seen)) {
		if !seen[layer] {
			continue
		}
		row := make([]float64, len(steps))
		for i, m := range steps {
			if row[i] = math.NaN(); m.Plasticity[layer] > 0 { // the axis has no 0
				row[i] = m.Plasticity[layer]
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
