package report

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"dynmo/src/dynamic"
	"dynmo/src/model"
	"dynmo/src/piece"
	"dynmo/src/record"
)

// pieces is the share of a layer's work that each of its pieces had over steps.
type pieces struct {
	Layer string
	View  *heat // of the pieces; those that several replicas had are hatched
	Moved int   // number of steps after which pieces of any layer moved
	load  *chart

	Fullest, Even float64 // work of the fullest replica divided by its even share, means over layers and steps: in the run, and without moves and copies
}

// pieces returns the pieces of one layer. It is the layer whose fullest replica had the most work
// under the kind's own rule, by the mean over steps. It returns nil if replicas do not divide
// layers into pieces.
func (r Run) pieces() (*pieces, error) {
	var held func(piece.Assignment, int, dynamic.Values) dynamic.Held
	for _, kind := range dynamic.Active(r.Config) {
		if held == nil && kind.Held != nil {
			held = kind.Held(r.Config)
		}
	}
	if held == nil {
		return nil, nil
	}
	all := dynamic.AllCounts(r.Config)
	at, placed, err := r.placedAt()
	if err != nil {
		return nil, err
	}
	rows := make(map[string][]dynamic.Held) // by layer and step
	load, even := make([]float64, len(r.Metrics)), make([]float64, len(r.Metrics))
	sums := make(map[string]float64)
	for i, m := range r.Metrics {
		var present piece.Assignment
		number := 0
		if k, _ := slices.BinarySearch(at, m.Step); k > 0 {
			present = placed[k-1]
		}
		for _, c := range m.Counts {
			counts, known := dynamic.Find(all, c.Name)
			if !known {
				continue
			}
			h := held(present, number, counts.Read(c.Values))
			if h.Holders == nil {
				continue
			}
			number++
			if rows[c.Layer] == nil {
				rows[c.Layer] = make([]dynamic.Held, len(r.Metrics))
			}
			rows[c.Layer][i] = h
			load[i], even[i], sums[c.Layer] = load[i]+h.Load, even[i]+h.Even, sums[c.Layer]+h.Even
		}
		load[i], even[i] = load[i]/float64(number), even[i]/float64(number)
	}
	n := float64(len(r.Metrics))
	p := &pieces{Moved: len(at), Fullest: floats.Sum(load) / n, Even: floats.Sum(even) / n}
	for _, layer := range r.chain() {
		if sums[layer] > sums[p.Layer] {
			p.Layer = layer
		}
	}
	if p.Layer == "" {
		return nil, nil
	}
	p.view(rows[p.Layer], r.Metrics[0].Step)
	was, without := curve{Name: "as it was", Style: "line"}, curve{Name: "without moves and copies", Style: "static"}
	for i := range load {
		was.Y, without.Y = append(was.Y, record.Float(load[i])), append(without.Y, record.Float(even[i]))
	}
	p.load = r.chart("fullest replica", "", "work of the fullest replica of a stage over its even share, mean over layers; dashed: as if no piece had moved or had copies", was, without)
	return p, nil
}

// placedAt returns the steps after which pieces moved, and the new assignments of pieces.
func (r Run) placedAt() (at []int, placed []piece.Assignment, err error) {
	shape := model.FromConfig(r.Config)
	for _, e := range r.Events {
		text, ok := e.Detail["pieces"].(string)
		if !ok || e.Kind != record.Place {
			continue
		}
		shape.Pieces, err = piece.Parse(text)
		for block := 0; err == nil && block < shape.Blocks; block++ {
			_, err = shape.Holders(block)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %s event after step %d: %w", record.EventsFile, e.Kind, e.Step, err)
		}
		at, placed = append(at, e.Step), append(placed, shape.Pieces)
	}
	return at, placed, nil
}

// view sets the map of the pieces of a layer over the steps from `first` on.
func (p *pieces) view(steps []dynamic.Held, first int) {
	shares, holders := &work{What: "work of the layer"}, make([][]int, len(steps))
	for _, h := range steps {
		for k := len(shares.names); k < len(h.Shares); k++ {
			shares.names = append(shares.names, fmt.Sprint(k))
		}
	}
	for i, h := range steps {
		row := slices.Repeat([]float64{math.NaN()}, len(shares.names))
		copy(row, h.Shares)
		holders[i] = make([]int, len(shares.names))
		copy(holders[i], h.Holders)
		shares.shares = append(shares.shares, row)
	}
	p.View = shares.view(first)
	for piece := range shares.names {
		for begin, end := 0, 0; begin < len(steps); begin = end {
			n := holders[begin][piece]
			for end = begin + 1; end < len(steps) && holders[end][piece] == n; end++ {
			}
			if n > 1 {
				p.View.Hatched = append(p.View.Hatched, box{Step: begin, Width: end - begin, Layer: piece, Height: 1})
			}
		}
	}
}

// placeText describes a move of pieces.
func placeText(e record.Event) string {
	placed, _ := e.Detail["placed"].(map[string]any)
	of := func(name string) float64 { x, _ := placed[name].(float64); return x }
	text := fmt.Sprintf("Pieces of %v layers moved: work of the fullest replica over its even share %.2f, predicted %.2f (lower bound %.2f), steps %.1f %% shorter.",
		of("layers"), of("now"), of("then"), of("bound"), 100*of("gain"))
	if bytes := of("copied"); bytes > 0 {
		text += fmt.Sprintf(" Copies make the busiest rank of a stage send or receive %s in a step.", record.Bytes(int64(bytes)))
	}
	return text
}
