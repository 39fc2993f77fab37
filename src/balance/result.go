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
	Bottleneck   float64   // the largest of them, in seconds per microbatch
	LowerBound   float64   // no partition has a smaller bottleneck
	Optimal      bool      // proved to be the smallest possible bottleneck
	MovedBytes   int64     // bytes that change owner; 0 without present cuts
}

// Evaluate returns what a partition costs. Optimal says only whether it meets
// the lower bound. The error is a *MemoryError if a stage cannot hold its
// layers, else an error of the cuts.
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

// result describes a partition that has been found feasible.
func (c *chain) result(cuts partition.Partition) Result {
	r := Result{Cuts: slices.Clone(cuts), StageSeconds: make([]float64, c.Stages)}
	for s := range c.Stages {
		r.StageSeconds[s] = c.seconds(s, cuts[s], cuts[s+1])
	}
	r.Bottleneck = slices.Max(r.StageSeconds)
	// T/P is rounded and may pass an optimum that equals it by a digit.
	r.LowerBound = min(c.lowerBound(), r.Bottleneck)
	return r
}

// Gap returns how far a bottleneck lies above the optimum, as a share of the
// optimum.
func Gap(bottleneck, optimum float64) float64 {
	if bottleneck == optimum {
		return 0
	}
	return bottleneck/optimum - 1
}

// MemoryError says why layers cannot be held.
type MemoryError struct {
	Layer   int    // the layer that no stage can hold; -1 if it is no single layer's fault
	Name    string // how errors call that layer
	Stage   int    // the stage that comes closest, or that is too full; -1 if it is no single stage's fault
	Missing int64  // bytes missing there; without layer and stage: on every stage
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
