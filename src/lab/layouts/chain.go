package layouts

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"dynmo/src/cost"
)

// Chain is the layers of a model with their roles. A name with a number is a part of the block, or of the
// layer of multi-token prediction, of that number. Names before the first number are the embedding, names
// behind the last are the head.
type Chain struct {
	Layers []cost.Layer
	parts  []part
	blocks int
	mtps   int
	head   int // the first layer of the head
}

// part is the role of a layer: E, t, m or L, and which block or layer of multi-token prediction it is in.
type part struct {
	role   byte
	number int
	first  bool // whether the block, or the layer of multi-token prediction, begins with it
}

var numbered = regexp.MustCompile(`\d+`)

// Kind returns the name of a layer without its number: layers of one kind are alike as far as a trainer's
// log tells.
func Kind(name string) string { return numbered.ReplaceAllString(name, "N") }

// NewChain returns the chain of some layers. An error names the layer that is out of order.
func NewChain(layers []cost.Layer) (Chain, error) {
	c := Chain{Layers: layers, head: len(layers)}
	for l, layer := range layers {
		number, err := strconv.Atoi(numbered.FindString(layer.Name))
		p := part{role: block, number: number}
		if strings.HasPrefix(layer.Name, "mtp") {
			p.role = mtp
		}
		count := &c.blocks
		if p.role == mtp {
			count = &c.mtps
		}
		switch {
		case l > 0 && layers[l-1].Name == layer.Name:
			return c, fmt.Errorf("layer %d, %q: a second time, want each layer once", l, layer.Name)
		case err != nil && c.blocks == 0 && p.role != mtp:
			p = part{role: embedding, first: l == 0}
		case err != nil && p.role != mtp:
			p = part{role: loss, first: c.head == len(layers)}
			c.head = min(c.head, l)
		case c.head < len(layers):
			return c, fmt.Errorf("layer %d, %q: behind %q, want the head last", l, layer.Name, layers[c.head].Name)
		case p.role == block && c.mtps > 0:
			return c, fmt.Errorf("layer %d, %q: behind a layer of multi-token prediction, want those behind every block", l, layer.Name)
		case *count == number:
			*count++
			p.first = true
		case *count != number+1:
			return c, fmt.Errorf("layer %d, %q: want number %d: a layer is missing, or out of order", l, layer.Name, *count)
		}
		c.parts = append(c.parts, p)
	}
	switch {
	case c.blocks == 0:
		return c, errors.New("no layer has a number, want the blocks as block.0, block.1, …")
	case c.parts[0].role != embedding:
		return c, fmt.Errorf("the first layer is %q: want the embedding before it, with its own line (its backward may be 0)", layers[0].Name)
	case c.head == len(layers):
		return c, fmt.Errorf("the last layer is %q: want the head behind it, with its own line", layers[len(layers)-1].Name)
	}
	return c, c.checkBackward()
}

// checkBackward returns an error for a layer without seconds of backward behind a layer that has them. The
// gradient of the earlier layer came through it, so the costs have a hole.
func (c Chain) checkBackward() error {
	passed := ""
	for _, l := range c.Layers {
		if l.BackwardInput+l.BackwardWeight > 0 {
			passed = l.Name
		} else if passed != "" && l.Forward > 0 {
			return fmt.Errorf("layer %q: backward 0, and %q before it has one: its gradient came through this layer (a backward that was not measured takes about twice the forward)", l.Name, passed)
		}
	}
	return nil
}
