package report

import (
	"fmt"
	"math"
)

// heatView is a heat map with its layout on the page. Positions are percentages of its width and
// height.
type heatView struct {
	*heat
	Height int     // pixels
	Top    float64 // in a map of shares: the share with the lightest colour
	Boxes  []boxView
	Frozen []boxView
	Marks  []string // model changes; moves are visible in the map itself
	Steps  []tick
	Layers []tick
	Stages []stageColour
}

type boxView struct {
	box
	Colour     stageColour
	Label      string // "" if the box is too small
	Left, Top  string
	Wide, High string
	Title      string
}

type tick struct{ At, Label string }

// stageColour is the colour of a stage, and the colour of text on it.
type stageColour struct{ Name, Fill, Text string }

// view lays out a heat map over the steps from `first` on, with marks and frozen layers. It returns
// nil for a nil map.
func (h *heat) view(first int, marks []mark, cold []frozen) *heatView {
	if h == nil {
		return nil
	}
	v := &heatView{heat: h, Height: max(140, min(13*h.Layers, 420))}
	steps, layers := float64(h.Steps), float64(h.Layers)
	for s := range h.Stages {
		v.Stages = append(v.Stages, colourOf(s, h.Stages))
	}
	for _, b := range h.Boxes {
		name := fmt.Sprint(b.Stage)
		if b.Chunk > 0 {
			name = fmt.Sprintf("%d.%d", b.Stage, b.Chunk)
		}
		n := boxView{box: b, Colour: v.Stages[b.Stage],
			Left: percent(float64(b.Step), steps), Top: percent(float64(b.Layer), layers),
			Wide: percent(float64(b.Width), steps), High: percent(float64(b.Height), layers),
			Title: fmt.Sprintf("stage %s: layers %d to %d, steps %d to %d", name, b.Layer, b.Layer+b.Height-1, first+b.Step, first+b.Step+b.Width-1)}
		if float64(b.Width) >= steps/40 && float64(b.Height*v.Height) >= 13*layers {
			n.Label = name
		}
		v.Boxes = append(v.Boxes, n)
	}
	for _, f := range cold {
		if f.hi > f.lo && f.layers > 0 {
			v.Frozen = append(v.Frozen, boxView{
				Left: percent(float64(f.lo), steps), Top: "0", Wide: percent(float64(f.hi-f.lo), steps), High: percent(float64(min(f.layers, h.Layers)), layers),
			})
		}
	}
	for _, m := range marks {
		if x := m.Step + 0.5 - float64(first); m.Kind == "dynamic" && x >= 0 && x <= steps {
			v.Marks = append(v.Marks, percent(x, steps))
		}
	}
	by := round(h.Steps / 8)
	for k := range h.Steps {
		if step := first + k; step%by == 0 {
			v.Steps = append(v.Steps, tick{percent(float64(k)+0.5, steps), fmt.Sprint(step)})
		}
	}
	every := max(1, int(math.Ceil(13*layers/float64(v.Height))))
	for k := range (h.Layers-1)/every + 1 {
		v.Layers = append(v.Layers, tick{percent(float64(k*every)+0.5, layers), h.name(k * every)})
	}
	return v
}

// round returns the smallest of 1, 2, 5, 10, 20, 50, … that is at least n.
func round(n int) int {
	for ten := 1; ; ten *= 10 {
		for _, f := range []int{1, 2, 5} {
			if f*ten >= n {
				return f * ten
			}
		}
	}
}

// percent formats a share of the width or height of a map.
func percent(x, of float64) string { return fmt.Sprintf("%.4g%%", 100*x/of) }

// name returns the label of a layer beside the map.
func (h *heat) name(layer int) string {
	if h.Names == nil {
		return fmt.Sprint(layer)
	}
	return layerLabel(h.Names[layer])
}

// Scale returns five colours of a map of shares with their labels.
func (v *heatView) Scale() (list []stageColour) {
	for k := range 5 {
		c := v.Stages[k*(len(v.Stages)-1)/4]
		c.Name = fmt.Sprintf("%.3g %%", 25*float64(k)*v.Top)
		list = append(list, c)
	}
	return list
}

// viridis is five colours of the colour map viridis (Smith and van der Walt 2015). Their lightness
// rises throughout, so they keep their order without hues.
var viridis = [5][3]float64{{68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}}

// colourOf returns the colour of a stage.
func colourOf(stage, stages int) stageColour {
	place := 4 * (float64(stage) + 0.5) / float64(stages)
	i := min(int(place), 3)
	var c [3]float64
	for k := range c {
		c[k] = viridis[i][k] + (place-float64(i))*(viridis[i+1][k]-viridis[i][k])
	}
	text := "#fff"
	if 0.3*c[0]+0.59*c[1]+0.11*c[2] > 110 {
		text = "#000"
	}
	return stageColour{fmt.Sprint(stage), fmt.Sprintf("#%02x%02x%02x", int(c[0]), int(c[1]), int(c[2])), text}
}
