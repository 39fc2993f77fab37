package report

import (
	"errors"
	"fmt"
	"slices"

	"dynmo/src/partition"
	"dynmo/src/record"
)

// heat is a map of rectangles over steps. Their rows are the layers of the chain, or pieces of one
// layer. Their colours are stages, or shares in so many levels.
type heat struct {
	first                 int // number of the first step
	Steps, Layers, Stages int
	Boxes                 []box
	Hatched               []box
	Marks                 []string // places of model changes; moves are visible in the map itself
	Thinned               int      // number of steps that are left out because their layout was too short-lived to be visible
	Top                   float64  // in a map of shares: the share with the lightest colour; else 0

	names []string         // of the rows; nil: rows are numbered
	title func(box) string // without the steps
}

// box says that a stage had layers [Layer, Layer+Height) in steps [Step, Step+Width), counted from
// the first step of the run.
type box struct{ Stage, Chunk, Step, Width, Layer, Height int }

// maxColumns is the largest number of consecutive layouts that a page can show.
const maxColumns = 240

// stageMap returns the mapping of virtual stages to stages in a step.
func stageMap(m record.Metrics) (partition.Map, error) {
	virtual, stages := len(m.Cuts)-1, len(m.LayersPerStage)
	if virtual < 1 || stages < 1 || virtual%stages != 0 {
		return partition.Map{}, fmt.Errorf("cuts: %d virtual stages, want a multiple of the %d stages", virtual, stages)
	}
	return partition.Map{Stages: stages, Chunks: virtual / stages, Vee: m.Vee}, nil
}

// heat returns the map of the run's layouts, nil if they were not recorded. The error names the
// line with wrong cuts.
func (r Run) heat(marks []mark, cold []frozen, at places) (*heat, error) {
	if len(r.Metrics[0].Cuts) == 0 {
		return nil, nil
	}
	h := &heat{first: r.Metrics[0].Step, Steps: len(r.Metrics)}
	column := (len(r.Metrics) + maxColumns - 1) / maxColumns
	open := map[int]int{} // virtual stage: index of its box that may still grow
	last := -1            // index of the metric whose layout is drawn
	var lay partition.Map // mapping of virtual stages at that metric
	for i, m := range r.Metrics {
		if last >= 0 && slices.Equal(m.Cuts, r.Metrics[last].Cuts) && m.Schedule == r.Metrics[last].Schedule {
			continue
		}
		if last >= 0 && i/column == last/column {
			h.Thinned++
			continue
		}
		where, err := stageMap(m)
		cuts := partition.Partition(m.Cuts)
		switch {
		case err != nil:
		case i == 0 && cuts.Layers() < 1:
			err = errors.New("cuts: no layer")
		default:
			h.Layers = max(h.Layers, r.Metrics[0].Cuts[len(r.Metrics[0].Cuts)-1])
			err = cuts.Check(h.Layers, where.Virtual(), false)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", r.file(record.MetricsFile), i+1, err)
		}
		if where != lay { // the virtual stages differ: no box continues
			for _, k := range open {
				h.Boxes[k].Width = i - h.Boxes[k].Step
			}
			clear(open)
		}
		last, lay, h.Stages = i, where, max(h.Stages, where.Stages)
		for v := range where.Virtual() {
			lo, hi := cuts.Range(v)
			b := box{where.Stage(v), where.Chunk(v), i, h.Steps - i, lo, hi - lo}
			if k, ok := open[v]; ok {
				if o := h.Boxes[k]; o.Layer == b.Layer && o.Height == b.Height && o.Stage == b.Stage {
					continue
				}
				h.Boxes[k].Width = i - h.Boxes[k].Step
			}
			open[v] = len(h.Boxes)
			h.Boxes = append(h.Boxes, b)
		}
	}
	if names := r.chain(); len(names) == h.Layers {
		h.names = names
	}
	h.Boxes = slices.DeleteFunc(h.Boxes, func(b box) bool { return b.Height == 0 })
	h.title = func(b box) string {
		text := fmt.Sprintf("stage %s: layers %d to %d", b.name(), b.Layer, b.Layer+b.Height-1)
		if place := at.of(r.Metrics[b.Step].Step, b.Stage, -1); place != "" {
			text += "; " + place
		}
		return text
	}
	for _, f := range cold {
		if f.hi > f.lo && f.layers > 0 {
			h.Hatched = append(h.Hatched, box{Step: f.lo, Width: f.hi - f.lo, Height: min(f.layers, h.Layers)})
		}
	}
	for _, m := range marks {
		if x := m.Step + 0.5 - float64(h.first); m.Kind == "dynamic" && x >= 0 && x <= float64(h.Steps) {
			h.Marks = append(h.Marks, percent(x, float64(h.Steps)))
		}
	}
	return h, nil
}
