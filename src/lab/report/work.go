package report

import (
	"fmt"
	"math"
	"slices"

	"dynmo/src/dynamic"
	"dynmo/src/model"
	"dynmo/src/record"
)

// work is, by recorded step, the share of its dense work that each layer did. It is a share of the
// tokens if tokens leave or skip layers, or else of the scores of attention.
type work struct {
	What   string // "tokens" or "scores"
	names  []string
	counts []dynamic.Counts
	shares [][]float64 // by step and layer of the chain; NaN: the layer counts nothing
}

// work returns the work of the layers, nil if no layer counted any.
func (r Run) work() *work {
	w := &work{What: "tokens", names: model.FromConfig(r.Config).Names(), counts: dynamic.AllCounts(r.Config)}
	known := false
	for _, m := range r.Metrics {
		row := w.row(m, float64(m.BatchSize*r.Config.Model.Sequence))
		known = known || row != nil
		w.shares = append(w.shares, row)
	}
	if !known {
		return nil
	}
	return w
}

// row returns, by layer name, the shares of a step's tokens. It returns nil if no layer of the
// chain counted any.
func (w *work) row(m record.Metrics, tokens float64) []float64 {
	row, left, known := make([]float64, len(w.names)), make([]float64, len(w.names)), false
	taken := make(map[int]float64) // by layer
	for _, c := range m.Counts {
		layer := slices.Index(w.names, c.Layer)
		of, ok := dynamic.Find(w.counts, c.Name)
		if layer < 0 || !ok || of.Work == nil {
			continue
		}
		did := of.Work(of.Read(c.Values), tokens)
		if did.Scores {
			w.What = "scores"
		}
		if !math.IsNaN(did.Share) {
			taken[layer] = did.Share
		}
		left[layer], known = did.Left, true
	}
	if !known {
		return nil
	}
	there := 1.0
	for layer := range row {
		share, counts := taken[layer]
		switch {
		case counts:
			row[layer] = share
		case w.What == "scores":
			row[layer] = math.NaN()
		default:
			row[layer] = there
		}
		there -= left[layer]
	}
	return row
}

const (
	// workColumns and workLevels are the largest numbers of columns and of colours in a map of
	// work.
	workColumns, workLevels = 60, 20
)

// tops are the possible shares for the lightest colour of a map.
var tops = []float64{0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1}

// view lays out the shares as colours; lighter colours are larger shares.
func (w *work) view(first int) *heatView {
	steps := len(w.shares)
	h := &heat{Steps: steps, Layers: len(w.names), Stages: workLevels + 1, Names: w.names}
	column := (steps + workColumns - 1) / workColumns
	most := 0.0
	for layer := range w.names {
		for begin := 0; begin < steps; begin += column {
			if share := w.mean(layer, begin, min(begin+column, steps)); share > most { // false for NaN
				most = share
			}
		}
	}
	at, _ := slices.BinarySearch(tops, most)
	top := tops[min(at, len(tops)-1)]
	var titles []string
	for layer, name := range w.names {
		for begin := 0; begin < steps; begin += column {
			end := min(begin+column, steps)
			share := w.mean(layer, begin, end)
			if math.IsNaN(share) {
				continue
			}
			level := int(math.Round(workLevels * min(max(share/top, 0), 1)))
			if n := len(h.Boxes) - 1; n >= 0 && h.Boxes[n].Layer == layer && h.Boxes[n].Stage == level && h.Boxes[n].Step+h.Boxes[n].Width == begin {
				h.Boxes[n].Width += end - begin
				continue
			}
			h.Boxes = append(h.Boxes, box{Stage: level, Step: begin, Width: end - begin, Layer: layer, Height: 1})
			titles = append(titles, fmt.Sprintf("%s: about %.3g %% of the %s", name, 100*share, w.What))
		}
	}
	v := h.view(first, nil, nil)
	v.Top = top
	for i := range v.Boxes {
		b := &v.Boxes[i]
		b.Label = ""
		b.Title = fmt.Sprintf("%s, steps %d to %d", titles[i], first+b.Step, first+b.Step+b.Width-1)
	}
	return v
}

// mean returns the mean share of a layer over steps [begin, end), NaN if none is known.
func (w *work) mean(layer, begin, end int) float64 {
	sum, n := 0.0, 0
	for _, row := range w.shares[begin:end] {
		if row != nil && !math.IsNaN(row[layer]) {
			sum, n = sum+row[layer], n+1
		}
	}
	return sum / float64(n)
}

// blocks returns the mean share of the blocks in a recorded step, NaN if none is known.
func (w *work) blocks(chain []model.Description, step int) float64 {
	sum, n := 0.0, 0
	for layer, share := range w.shares[step] {
		if chain[layer].Block >= 0 && !math.IsNaN(share) {
			sum, n = sum+share, n+1
		}
	}
	return sum / float64(n)
}

// chart returns the mean share of the blocks over steps, nil for a nil work.
func (w *work) chart(r Run) *chart {
	if w == nil {
		return nil
	}
	chain := model.FromConfig(r.Config).Chain()
	n := curve{Name: "blocks", Style: "line"}
	for i := range r.Metrics {
		n.Y = append(n.Y, record.Float(100*w.blocks(chain, i)))
	}
	title, about := "tokens in blocks", "share of the tokens that a block works on, mean over the blocks"
	if w.What == "scores" {
		title, about = "scores", "share of the causal scores that are computed, mean over the blocks"
	}
	return r.chart(title, "%", about, n)
}
