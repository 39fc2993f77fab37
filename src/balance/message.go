package balance

import (
	"fmt"
	"slices"

	"dynmo/src/partition"
)

// A stage travels as stageHeader numbers and then layerNumbers for each layer.
const (
	stageHeader  = 10
	layerNumbers = 4
)

// encode appends stages to a message.
func encode(message []float64, stages ...Stage) []float64 {
	for _, s := range stages {
		message = append(message, float64(s.Index), float64(s.Stages), float64(s.First), s.Slow, s.Fixed,
			float64(s.Capacity), float64(s.FixedBytes), float64(s.InFlight), float64(s.Between), float64(len(s.Layers)))
		message = encodeLayers(message, s.Layers)
	}
	return message
}

// decode returns the stages of a message.
func decode(m []float64) (stages []Stage, err error) {
	for len(m) > 0 {
		if len(m) < stageHeader || float64(len(m)-stageHeader) < layerNumbers*m[stageHeader-1] {
			return nil, fmt.Errorf("message of %d numbers does not hold the stage it names", len(m))
		}
		end := stageHeader + layerNumbers*int(m[stageHeader-1])
		stages = append(stages, Stage{
			Index: int(m[0]), Stages: int(m[1]), First: int(m[2]), Slow: m[3], Fixed: m[4],
			Capacity: int64(m[5]), FixedBytes: int64(m[6]), InFlight: int(m[7]), Between: int(m[8]),
			Layers: decodeLayers(m[stageHeader:end]),
		})
		m = m[end:]
	}
	return stages, nil
}

// encodeLayers appends layers to a message.
func encodeLayers(message []float64, layers []Load) []float64 {
	for _, l := range layers {
		message = append(message, l.Seconds, float64(l.Static), float64(l.Activation), float64(l.Held))
	}
	return message
}

// decodeLayers returns the layers of a message.
func decodeLayers(m []float64) []Load {
	layers := make([]Load, 0, len(m)/layerNumbers)
	for ; len(m) >= layerNumbers; m = m[layerNumbers:] {
		layers = append(layers, Load{m[0], int64(m[1]), int64(m[2]), int64(m[3])})
	}
	return layers
}

// recut takes part in a round of phase 2: the stages of a window learn of each
// other's layers by way of the middle one, and each finds the same new cuts.
func (g *party) recut(round int) (changed bool, err error) {
	firsts, width := windows(round, g.me.Stages)
	i := slices.IndexFunc(firsts, func(f int) bool { return f <= g.me.Index && g.me.Index < f+width })
	if i < 0 {
		return false, nil
	}
	window, err := g.window(firsts[i], width)
	if err != nil {
		return false, err
	}
	if len(window) != width {
		return false, fmt.Errorf("%d stages take part in a window of %d", len(window), width)
	}
	changed = recut(window)
	g.me = window[g.me.Index-firsts[i]]
	return changed, nil
}

// window returns what the stages of a window know: this one's neighbours' by
// exchange with them, the others' relayed by the middle stage, which turns to
// its right neighbour, then to its left, then to its right again.
func (g *party) window(first, width int) ([]Stage, error) {
	me := encode(nil, g.me)
	if width < widest { // two stages
		left := g.me.Index == first
		other := first
		if left {
			other = first + 1
		}
		in, err := g.link.Exchange(other, me)
		if err != nil {
			return nil, err
		}
		if left {
			return decode(slices.Concat(me, in))
		}
		return decode(slices.Concat(in, me))
	}
	middle := first + 1
	switch g.me.Index {
	case first:
		rest, err := g.link.Exchange(middle, me)
		if err != nil {
			return nil, err
		}
		return decode(slices.Concat(me, rest))
	case middle:
		right, err := g.link.Exchange(middle+1, me)
		if err != nil {
			return nil, err
		}
		left, err := g.link.Exchange(first, slices.Concat(me, right))
		if err != nil {
			return nil, err
		}
		if _, err := g.link.Exchange(middle+1, left); err != nil {
			return nil, err
		}
		return decode(slices.Concat(left, me, right))
	}
	centre, err := g.link.Exchange(middle, me)
	if err != nil {
		return nil, err
	}
	left, err := g.link.Exchange(middle, nil)
	if err != nil {
		return nil, err
	}
	return decode(slices.Concat(left, centre, me))
}

// shift passes the layers' numbers from neighbour to neighbour until every
// stage has those that are its own at the next cuts. What a stage holds stays
// one piece of the chain all the way.
func (g *party) shift(present, next partition.Partition) error {
	hops := 0
	for l := range present.Layers() {
		from, to := present.Stage(l), next.Stage(l)
		hops = max(hops, from-to, to-from)
	}
	lo, hi := next.Range(g.me.Index)
	held, first := g.me.Layers, g.me.First
	for range hops {
		left := min(max(lo-first, 0), len(held))     // layers that go left
		right := min(max(hi-first, left), len(held)) // where those begin that go right
		fromLeft, fromRight, err := g.neighbours(encodeLayers(nil, held[:left]), encodeLayers(nil, held[right:]))
		if err != nil {
			return err
		}
		before := decodeLayers(fromLeft)
		held = slices.Concat(before, held[left:right], decodeLayers(fromRight))
		first += left - len(before)
	}
	if first != lo || len(held) != hi-lo {
		return fmt.Errorf("stage %d holds layers %d to %d, want %d to %d", g.me.Index, first, first+len(held), lo, hi)
	}
	g.me.First, g.me.Layers = lo, held
	return nil
}
