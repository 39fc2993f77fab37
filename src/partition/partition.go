// Package partition divides the chain of layers over stages: cut points in, the layers of each
// stage out.
package partition

import (
	"fmt"
	"slices"
)

// Partition has the cut points of a chain of layers: stage s has layers [p[s], p[s+1]). It has
// Stages()+1 entries in ascending order. The first is 0 and the last the number of layers.
type Partition []int

// Stages returns the number of stages.
func (p Partition) Stages() int { return len(p) - 1 }

// Layers returns the number of layers.
func (p Partition) Layers() int { return p[len(p)-1] }

// Range returns the layers [lo, hi) of a stage.
func (p Partition) Range(stage int) (lo, hi int) { return p[stage], p[stage+1] }

// Count returns the number of layers of a stage.
func (p Partition) Count(stage int) int { return p[stage+1] - p[stage] }

// Stage returns the stage of a layer.
func (p Partition) Stage(layer int) int {
	// The stage is the last one whose first cut is at most layer. Empty stages share a cut with the
	// stage behind them, so the search skips them.
	s, _ := slices.BinarySearchFunc(p[1:], layer, func(cut, l int) int {
		if cut <= l {
			return -1
		}
		return 1
	})
	return s
}

// Equal reports whether p and q have the same cuts.
func (p Partition) Equal(q Partition) bool { return slices.Equal(p, q) }

// Moved returns the layers whose stage differs between p and q, ascending.
func (p Partition) Moved(q Partition) []int {
	var moved []int
	for l := range p.Layers() {
		if p.Stage(l) != q.Stage(l) {
			moved = append(moved, l)
		}
	}
	return moved
}

// Check returns an error unless p is a partition of layers over stages. With nonEmpty every stage
// must have a layer.
func (p Partition) Check(layers, stages int, nonEmpty bool) error {
	switch {
	case len(p) != stages+1:
		return fmt.Errorf("partition %v has %d stages, want %d", []int(p), len(p)-1, stages)
	case p[0] != 0 || p[len(p)-1] != layers:
		return fmt.Errorf("partition %v does not cover layers 0 to %d", []int(p), layers)
	}
	for s := range stages {
		if n := p.Count(s); n < 0 || nonEmpty && n == 0 {
			return fmt.Errorf("partition %v gives stage %d %d layers", []int(p), s, n)
		}
	}
	return nil
}
