package balance

import (
	"fmt"
	"slices"

	"dynmo/src/partition"
)

// Result is a partition and its cost.
type Result struct {
	Cuts         partition.Partition
	StageSeconds []float64 // by stage: slow_s·Σt + fixed_s
	Bottleneck   float64   // the largest of StageSeconds, in seconds per microbatch
	LowerBound   float64   // no partition has a smaller bottleneck
	Optimal      bool      // whether Bottleneck is proved to be the smallest possible
	MovedBytes   int64     // bytes of layers whose stage changes; 0 without present cuts
}

// Evaluate returns the cost of a partition. Optimal is true only if the bottleneck equals the lower
// bound. The error is a *MemoryError if the layers of a stage do not fit into its memory. Else it
// is an error in the cuts.
func (p Problem) Evaluate(cuts partition.Partition) (Result, error) {
	c, err := newChain(p)
	if err != nil {
		return Result{}, err
	}
	if err := cuts.Check(p.Layers(), p.Stages, !p.AllowEmpty); err != nil {
		return Result{}, err
	}
	for s := range p.Stages {
		if b, e := cuts.Range(s); !c.fits(s, b, e) {
			return Result{}, &MemoryError{Layer: -1, Stage: s, Missing: c.bytes(s, b, e) - entry(c.Capacity, s, 0)}
		}
	}
	r := c.result(cuts)
	r.Optimal = r.Bottleneck == r.LowerBound
	return r, nil
}

// result returns the cost of a partition that is known to be feasible.
func (c *chain) result(cuts partition.Partition) Result {
	r := Result{Cuts: slices.Clone(cuts), StageSeconds: make([]float64, c.Stages)}
	for s := range c.Stages {
		r.StageSeconds[s] = c.seconds(s, cuts[s], cuts[s+1])
	}
	r.Bottleneck = slices.Max(r.StageSeconds)
	// T/P is rounded. It may exceed an optimum equal to T/P by a last digit.
	r.LowerBound = min(c.lowerBound(), r.Bottleneck)
	return r
}

// Gap returns by how much a bottleneck exceeds the optimum, as a share of the optimum.
func Gap(bottleneck, optimum float64) float64 {
	if bottleneck == optimum {
		return 0
	}
	return bottleneck/optimum - 1
}

// MemoryError is the error that layers do not fit into the memory of stages.
type MemoryError struct {
	Layer   int    // the layer that fits on no stage; -1 if no single layer is the cause
	Name    string // the name of that layer in error texts
	Stage   int    // the stage that lacks the fewest bytes, or that is too full; -1 if no single stage is the cause
	Missing int64  // bytes that the stage lacks; if neither layer nor stage is named, that every stage lacks
}

func (e *MemoryError) Error() string {
	switch {
	case e.Layer >= 0:
		return fmt.Sprintf("memory: %s fits on no stage; on stage %d, the roomiest for it, %d bytes are missing",
			e.Name, e.Stage, e.Missing)
	case e.Stage >= 0:
		return fmt.Sprintf("memory: stage %d lacks %d bytes for its layers", e.Stage, e.Missing)
	}
	return fmt.Sprintf("memory: the layers fit on the stages in no way; every stage lacks at least %d bytes", e.Missing)
}
