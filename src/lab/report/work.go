package report

import (
	"fmt"
	"math"
	"slices"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/model"
	"dynmo/src/record"
)

// work is, by recorded step, the share of its dense work that each layer did. It is a share of the
// tokens if tokens leave or skip layers, or else of the scores of attention.
type work struct {
	What   string // "tokens" or "scores"
	config config.Config
	chain  []model.Description
	names  []string // of the chain
	counts []dynamic.Counts
	shares [][]float64 // by step and layer of the chain; nil: no layer counts anything; NaN: this one does not
}

// newWork returns the work before any step.
func newWork(c config.Config) *work {
	shape := model.FromConfig(c)
	return &work{What: "tokens", config: c, chain: shape.Chain(), names: shape.Names(), counts: dynamic.AllCounts(c)}
}

// work returns the work of the layers. It has no shares if no layer counted any.
func (r Run) work() *work {
	w := newWork(r.Config)
	for _, m := range r.Metrics {
		w.shares = append(w.shares, w.row(m))
	}
	if !slices.ContainsFunc(w.shares, func(row []float64) bool { return row != nil }) {
		w.shares = nil
	}
	return w
}

// tokens returns the tokens of a step.
func (w *work) tokens(m record.Metrics) float64 {
	return float64(m.BatchSize * w.config.Model.Sequence)
}

// row returns, by layer, the shares of a step's tokens. It returns nil if no layer of the chain
// counted any.
func (w *work) row(m record.Metrics) []float64 {
	row, left, known := make([]float64, len(w.names)), make([]float64, len(w.names)), false
	taken := make(map[int]float64) // by layer
	for _, c := range m.Counts {
		layer := slices.Index(w.names, c.Layer)
		of, ok := dynamic.Find(w.counts, c.Name)
		if layer < 0 || !ok || of.Work == nil {
			continue
		}
		did := of.Work(of.Read(c.Values), w.tokens(m))
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

// seen returns the model in some steps, at least one. It leaves out what the records of these steps
// alone do not tell.
func (w *work) seen(steps []record.Metrics) dynamic.Seen {
	seen := dynamic.Seen{Config: w.config, Sparsity: float64(steps[len(steps)-1].Sparsity), Layers: len(w.chain), Scores: math.NaN()}
	for _, m := range steps {
		seen.Tokens += w.tokens(m)
		for _, c := range m.Counts {
			if of, known := dynamic.Find(w.counts, c.Name); known && slices.Contains(w.names, c.Layer) {
				seen.Counts = append(seen.Counts, of.Read(c.Values))
			}
		}
	}
	return seen
}

// blocks returns the mean share of the blocks in a row, NaN if none is known.
func (w *work) blocks(row []float64) float64 {
	var list []float64
	for layer, share := range row {
		if w.chain[layer].Block >= 0 {
			list = append(list, share)
		}
	}
	return meanKnown(list)
}

// meanKnown returns the mean of the numbers in a list, NaN if there is none.
func meanKnown(list []float64) float64 {
	sum, n := 0.0, 0
	for _, x := range list {
		if !math.IsNaN(x) {
			sum, n = sum+x, n+1
		}
	}
	return sum / float64(n)
}

// mean returns the mean share of a layer over steps [begin, end), NaN if none is known.
func (w *work) mean(layer, begin, end int) float64 {
	var list []float64
	for _, row := range w.shares[begin:end] {
		if row != nil {
			list = append(list, row[layer])
		}
	}
	return meanKnown(list)
}

// chart returns the mean share of the blocks over steps, nil if it is not known.
func (w *work) chart(r Run) *chart {
	if w.shares == nil {
		return nil
	}
	n := curve{Name: "blocks", Style: "line"}
	for _, row := range w.shares {
		n.Y = append(n.Y, record.Float(100*w.blocks(row)))
	}
	if w.What == "scores" {
		return r.chart("scores", "%", "share of the causal scores that are computed, mean over the blocks", n)
	}
	return r.chart("tokens in blocks", "%", "share of the tokens that a block works on, mean over the blocks", n)
}

const (
	// workColumns and workLevels are the largest numbers of columns and of colours in a map of
	// work.
	workColumns, workLevels = 60, 20
)

// tops are the possible shares for the lightest colour of a map.
var tops = []float64{0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1}

// view returns a map of the shares over the steps from `first` on, nil if there are none. Lighter
// colours are larger shares.
func (w *work) view(first int) *heat {
	if w.shares == nil {
		return nil
	}
	h := &heat{first: first, Steps: len(w.shares), Layers: len(w.names), Stages: workLevels + 1, names: w.names}
	h.title = func(b box) string {
		return fmt.Sprintf("%s: about %.3g %% of the %s", w.names[b.Layer], 100*w.mean(b.Layer, b.Step, b.Step+b.Width), w.What)
	}
	column, most := (h.Steps+workColumns-1)/workColumns, 0.0
	var shares []float64 // by box
	for layer := range w.names {
		for begin := 0; begin < h.Steps; begin += column {
			b := box{Step: begin, Width: min(column, h.Steps-begin), Layer: layer, Height: 1}
			if share := w.mean(layer, begin, begin+b.Width); !math.IsNaN(share) {
				h.Boxes, shares, most = append(h.Boxes, b), append(shares, share), max(most, share)
			}
		}
	}
	at, _ := slices.BinarySearch(tops, most)
	h.Top = tops[min(at, len(tops)-1)]
	boxes := h.Boxes[:0]
	for i, b := range h.Boxes {
		b.Stage = int(math.Round(workLevels * min(max(shares[i]/h.Top, 0), 1)))
		if n := len(boxes) - 1; n >= 0 && boxes[n].Layer == b.Layer && boxes[n].Stage == b.Stage && boxes[n].Step+boxes[n].Width == b.Step {
			boxes[n].Width += b.Width
			continue
		}
		boxes = append(boxes, b)
	}
	h.Boxes = boxes
	return h
}
