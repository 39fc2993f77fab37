package report

import (
	"fmt"
	"html/template"
	"math"
)

// Height returns the height of the map in pixels.
func (h *heat) Height() int { return max(140, min(13*h.Layers, 420)) }

// Place returns the place of a box as a style.
func (h *heat) Place(b box) template.CSS {
	steps, layers := float64(h.Steps), float64(h.Layers)
	return template.CSS(fmt.Sprintf("left:%s;top:%s;width:calc(%s + .5px);height:%s", percent(float64(b.Step), steps),
		percent(float64(b.Layer), layers), percent(float64(b.Width), steps), percent(float64(b.Height), layers)))
}

// Colour returns the colours of a box and of text on it as a style.
func (h *heat) Colour(b box) template.CSS {
	fill, text := colourOf(b.Stage, h.Stages)
	return template.CSS("background:" + fill + ";color:" + text)
}

// Title explains a box.
func (h *heat) Title(b box) string {
	return fmt.Sprintf("%s, steps %d to %d", h.title(b), h.first+b.Step, h.first+b.Step+b.Width-1)
}

// Label names the stage of a box, "" if the box is too small, or in a map of shares.
func (h *heat) Label(b box) string {
	if h.Top > 0 || 40*b.Width < h.Steps || float64(b.Height*h.Height()) < 13*float64(h.Layers) {
		return ""
	}
	return b.name()
}

// name returns the number of the stage, with that of a later chunk.
func (b box) name() string {
	if b.Chunk > 0 {
		return fmt.Sprintf("%d.%d", b.Stage, b.Chunk)
	}
	return fmt.Sprint(b.Stage)
}

// tick is a label beside the map, at a share of its width or height.
type tick struct{ At, Label string }

// Across returns the labels of steps.
func (h *heat) Across() (list []tick) {
	by := round(h.Steps / 8)
	for k := range h.Steps {
		if step := h.first + k; step%by == 0 {
			list = append(list, tick{percent(float64(k)+0.5, float64(h.Steps)), fmt.Sprint(step)})
		}
	}
	return list
}

// Down returns the labels of rows.
func (h *heat) Down() (list []tick) {
	every := max(1, int(math.Ceil(13*float64(h.Layers)/float64(h.Height()))))
	for k := range (h.Layers-1)/every + 1 {
		layer := k * every
		name := fmt.Sprint(layer)
		if h.names != nil {
			name = layerLabel(h.names[layer])
		}
		list = append(list, tick{percent(float64(layer)+0.5, float64(h.Layers)), name})
	}
	return list
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

// Scale returns five colours of a map of shares with their labels.
func (h *heat) Scale() (list []tick) {
	for k := range 5 {
		fill, _ := colourOf(k*(h.Stages-1)/4, h.Stages)
		list = append(list, tick{fill, fmt.Sprintf("%.3g %%", 25*float64(k)*h.Top)})
	}
	return list
}

// viridis is five colours of the colour map viridis (Smith and van der Walt 2015). Their lightness
// rises throughout, so they keep their order without hues.
var viridis = [5][3]float64{{68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}}

// colourOf returns the colour of a stage, and the colour of text on it.
func colourOf(stage, stages int) (fill, text string) {
	place := 4 * (float64(stage) + 0.5) / float64(stages)
	i := min(int(place), 3)
	var c [3]float64
	for k := range c {
		c[k] = viridis[i][k] + (place-float64(i))*(viridis[i+1][k]-viridis[i][k])
	}
	text = "#fff"
	if 0.3*c[0]+0.59*c[1]+0.11*c[2] > 110 {
		text = "#000"
	}
	return fmt.Sprintf("#%02x%02x%02x", int(c[0]), int(c[1]), int(c[2])), text
}
