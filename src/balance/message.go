package balance

import (
	"fmt"
	"math"
	"slices"

	"dynmo/src/partition"
)

// Link carries the messages of a stage during Diffuse.
type Link interface {
	// Exchange sends out to a neighbouring stage, which also calls Exchange with this stage. It
	// returns the numbers that the neighbour sends. Lengths may differ.
	Exchange(stage int, out []float64) (in []float64, err error)
	// Max replaces every value by the largest of that value over all stages. Collective.
	Max(values []float64) error
}

// inMemory is the link of a participant that has all stages: it has no neighbours, and its own
// values are the largest of all stages.
type inMemory struct{}

func (inMemory) Exchange(int, []float64) ([]float64, error) {
	panic("balance: all stages have no neighbour")
}

func (inMemory) Max([]float64) error { return nil }

// gather shares numbers of each participant's own stages with all participants: list[i][s] is the
// i-th number of stage s of the pipeline. Collective.
func (g *participant) gather(own ...[]float64) (list [][]float64, err error) {
	n := g.all()
	numbers := slices.Repeat([]float64{math.Inf(-1)}, len(own)*n)
	for i, x := range own {
		list = append(list, numbers[i*n:(i+1)*n])
		copy(list[i][g.first():], x)
	}
	return list, g.link.Max(numbers)
}

// cuts returns the present cuts of the pipeline. Collective.
func (g *participant) cuts() (partition.Partition, error) {
	ends := make([]float64, len(g.stages))
	for s := range g.stages {
		ends[s] = float64(g.stages[s].First + len(g.stages[s].Layers))
	}
	known, err := g.gather(ends)
	cuts := make(partition.Partition, g.all()+1)
	for s, end := range known[0] {
		cuts[s+1] = int(end)
	}
	return cuts, err
}

// meet fills kinds: it shares the speed and memory of every stage, without layers. Collective.
func (g *participant) meet() error {
	columns := make([][]float64, stageHeader)
	for _, own := range g.stages {
		own.Layers = nil
		for i, x := range encode(own) {
			columns[i] = append(columns[i], x)
		}
	}
	known, err := g.gather(columns...)
	if err != nil {
		return err
	}
	var all []float64
	for s := range g.all() {
		for i := range known {
			all = append(all, known[i][s])
		}
	}
	g.kinds, err = decode(all)
	return err
}

// objective returns the objective of all stages, and whether `changed` is true on any participant.
// Collective.
func (g *participant) objective(changed bool) (all objective, anyone bool, err error) {
	n := len(g.stages)
	worst, excess, flags := make([]float64, n), make([]float64, n), make([]float64, n)
	for s := range g.stages {
		own := g.stages[s].objective()
		worst[s], excess[s] = own.worst, float64(own.excess)
	}
	if changed {
		flags[0] = 1
	}
	list, err := g.gather(worst, excess, flags)
	for s := range g.all() {
		all = all.with(list[0][s], int64(list[1][s]))
		anyone = anyone || list[2][s] > 0
	}
	return all, anyone, err
}

// neighbours exchanges messages with the left and the right neighbour, where they exist. Even
// stages exchange with the right neighbour first, odd stages with the left. So no stages wait for
// each other in a circle.
func (g *participant) neighbours(toLeft, toRight []float64) (fromLeft, fromRight []float64, err error) {
	left, right := g.first()-1, g.first()+len(g.stages)
	for i := range 2 {
		switch toTheRight := (g.first()+i)%2 == 0; {
		case toTheRight && right < g.all():
			fromRight, err = g.link.Exchange(right, toRight)
		case !toTheRight && left >= 0:
			fromLeft, err = g.link.Exchange(left, toLeft)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return fromLeft, fromRight, nil
}

// relay passes a message along the line of stages. work receives the message from the neighbour on
// one side and returns the message for the neighbour on the other side. The first stage receives m.
// P-1 messages, one after the other. Collective.
func (g *participant) relay(m []float64, rightwards bool, work func(m []float64) []float64) (err error) {
	from, to := g.first()-1, g.first()+len(g.stages)
	if !rightwards {
		from, to = to, from
	}
	if from >= 0 && from < g.all() {
		if m, err = g.link.Exchange(from, nil); err != nil {
			return err
		}
	}
	m = work(m)
	if to >= 0 && to < g.all() {
		_, err = g.link.Exchange(to, m)
	}
	return err
}

// The message of a stage is stageHeader numbers, then layerNumbers for each layer.
const (
	stageHeader  = 11
	layerNumbers = 5
)

// encode returns a stage as a message.
func encode(s Stage) []float64 {
	return append([]float64{float64(s.Index), float64(s.Stages), float64(s.First), s.Slow, s.Fixed,
		float64(s.Capacity), float64(s.FixedBytes), float64(s.InFlight), float64(s.Between), float64(s.Recomputed), float64(len(s.Layers))},
		encodeLayers(s.Layers)...)
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
			Capacity: int64(m[5]), FixedBytes: int64(m[6]), InFlight: int(m[7]), Between: int(m[8]), Recomputed: int(m[9]),
			Layers: decodeLayers(m[stageHeader:end]),
		})
		m = m[end:]
	}
	return stages, nil
}

// encodeLayers returns layers as a message.
func encodeLayers(layers []Load) (message []float64) {
	for _, l := range layers {
		message = append(message, l.Seconds, float64(l.Static), float64(l.Activation), float64(l.Held), float64(l.Again))
	}
	return message
}

// decodeLayers returns the layers of a message.
func decodeLayers(m []float64) []Load {
	layers := make([]Load, 0, len(m)/layerNumbers)
	for ; len(m) >= layerNumbers; m = m[layerNumbers:] {
		layers = append(layers, Load{m[0], int64(m[1]), int64(m[2]), int64(m[3]), int64(m[4])})
	}
	return layers
}

// window returns the `width` neighbouring stages from `first` on, with their layers. If not all
// stages are in memory, the stages of the window exchange them edge by edge. The middle one of
// three exchanges with its right neighbour, its left, and its right again.
func (g *participant) window(first, width int) ([]Stage, error) {
	if len(g.stages) == g.all() {
		return g.stages[first : first+width], nil
	}
	me, own := g.first(), encode(g.stages[0])
	var left, right []float64 // the stages on both sides that have been received
	for _, edge := range []int{1, 0, 1}[widest-width : width] {
		var err error
		switch me - first {
		case edge:
			right, err = g.link.Exchange(me+1, slices.Concat(left, own))
		case edge + 1:
			left, err = g.link.Exchange(me-1, slices.Concat(own, right))
		}
		if err != nil {
			return nil, err
		}
	}
	window, err := decode(slices.Concat(left, own, right))
	if err == nil && len(window) != width {
		err = fmt.Errorf("%d stages take part in a window of %d", len(window), width)
	}
	return window, err
}

// shift changes the numbers of layers in every stage from the present to the next cuts. Numbers
// that belong to other participants pass from neighbour to neighbour. At all times the layers of a
// stage are one contiguous part of the chain.
func (g *participant) shift(present, next partition.Partition) error {
	layers, counts := layersOf(g.stages), make([]int, len(g.stages))
	for s := range counts {
		counts[s] = next.Count(g.first() + s)
	}
	if len(g.stages) < g.all() {
		var err error
		if layers, err = g.pass(layers, present, next); err != nil {
			return err
		}
	}
	g.stages[0].First = next[g.first()]
	deal(g.stages, layers, counts)
	return nil
}

// pass exchanges layers between neighbouring stages until each stage has the layers of its next
// cuts. The number of exchanges is the longest distance, in stages, that a layer moves.
func (g *participant) pass(held []Load, present, next partition.Partition) ([]Load, error) {
	hops := 0
	for l := range present.Layers() {
		from, to := present.Stage(l), next.Stage(l)
		hops = max(hops, from-to, to-from)
	}
	first := g.stages[0].First
	lo, hi := next.Range(g.first())
	for range hops {
		left := min(max(lo-first, 0), len(held))     // the first `left` layers go left
		right := min(max(hi-first, left), len(held)) // layers[right:] go right
		fromLeft, fromRight, err := g.neighbours(encodeLayers(held[:left]), encodeLayers(held[right:]))
		if err != nil {
			return nil, err
		}
		before := decodeLayers(fromLeft)
		held = slices.Concat(before, held[left:right], decodeLayers(fromRight))
		first += left - len(before)
	}
	if first != lo || len(held) != hi-lo {
		return nil, fmt.Errorf("stage %d holds layers %d to %d, want %d to %d", g.first(), first, first+len(held), lo, hi)
	}
	return held, nil
}
