package balance

import (
	"fmt"

	"dynmo/src/partition"
)

// DiffusionOptions say when phase 1 of diffusion stops.
type DiffusionOptions struct {
	Gamma     float64 // potential, as a share of the total load; 0 means 1e-3
	MaxRounds int     // most rounds; 0 means 10000
	Look      int     // rounds between two looks at the potential, each a reduction; 0 means as many as stages
}

func (o DiffusionOptions) withDefaults(stages int) DiffusionOptions {
	if o.Gamma == 0 {
		o.Gamma = 1e-3
	}
	if o.MaxRounds == 0 {
		o.MaxRounds = 10000
	}
	if o.Look == 0 {
		o.Look = stages
	}
	return o
}

// Descent is the record of one diffusion.
type Descent struct {
	Rounds    int       `json:"rounds"`    // rounds of phase 1
	Potential []float64 `json:"potential"` // φ of phase 1 at the start and at every look, in seconds
	Sweeps    int       `json:"sweeps"`    // sweeps of phase 2
	Squares   []float64 `json:"squares"`   // Σ load² of phase 3 at the start and after each round
	Excess    []int64   `json:"excess"`    // bytes over capacity, summed over stages, likewise
	Kept      bool      `json:"kept"`      // whether no new cuts were better and the present ones stay
}

// Diffusion balances by exchange between neighbours, with all stages in this
// process: Diffuse without messages. It begins at the present cuts. Every
// stage has a layer, before and after.
//
//   - Phase 1 diffuses loads as if they could be divided at will (first-order
//     diffusion on the path of stages, Cybenko 1989). It finds the place in the
//     chain's work at which each stage should begin.
//   - Phase 2 rounds these places to layers: it bisects the smallest bottleneck
//     max_s (slow_s·Σt + fixed_s) by sweeps along the line. Of the cuts with this
//     bottleneck it takes those nearest to phase 1 (see sweep). It starts without
//     cuts and so cannot get stuck. Exchange among a few neighbours gets stuck
//     where work must pass stages that gain nothing by it.
//   - Phase 3 re-cuts three neighbouring stages at a time until no three have a
//     smaller Σ load², at no larger bottleneck.
//
// Cuts with no smaller bottleneck than the present ones are dropped. It is
// deterministic. Without memory limits, and on stages of one speed, it ends on
// the smallest possible bottleneck, up to rounding; else mostly, see sweep. It returns
// an error if no cuts are found that fit into every stage's memory. From present cuts that
// fit this cannot happen.
//
// Departs: the paper's Algorithm 3 moves layers between any two ranks (see
// DiffusionPaper) and has no phase 2; its bound on rounds covers phase 1.
func Diffusion(p Problem, present partition.Partition, o DiffusionOptions) (Result, Descent, error) {
	p.AllowEmpty = false
	if err := p.Check(); err != nil {
		return Result{}, Descent{}, err
	}
	if err := present.Check(p.Layers(), p.Stages, true); err != nil {
		return Result{}, Descent{}, fmt.Errorf("present cuts: %w", err)
	}
	g := participant{stages: p.stagesAt(present), link: inMemory{}}
	cuts, d, err := g.diffuse(o)
	if err != nil {
		return Result{}, d, err
	}
	r, err := p.Evaluate(cuts)
	return r, d, err
}

// Diffuse is Diffusion by messages between neighbours, with every stage in a
// process of its own. Each calls it with its own part (Problem.Stage) and gets
// the new cuts of all stages and the record, the same on every one.
// Collective. Numbers of bytes must stay below 2^53. Errors are the link's, and
// Diffusion's.
//
// Neighbours alone exchange messages: one number on each edge in a round of phase
// 1, at most 14 in a sweep of phase 2, layers' numbers in phase 3. The P-1 messages
// of a sweep follow one another, and ten or twenty sweeps find the bottleneck: fewer
// messages than in phase 1. Reductions of a few numbers a stage give all stages the others'
// speeds and memory, the result of a sweep, and when to stop. Layers themselves do not move
// here.
func Diffuse(me Stage, link Link, o DiffusionOptions) (partition.Partition, Descent, error) {
	g := participant{stages: []Stage{me}, link: link}
	return g.diffuse(o)
}

// participant is one side of the links: it holds either one stage of the
// pipeline or, in memory, all of them.
type participant struct {
	stages []Stage
	link   Link
	kinds  []Stage // all stages of the pipeline, without their layers
}

// first returns the index of the participant's first stage.
func (g *participant) first() int { return g.stages[0].Index }

// all returns the number of stages of the pipeline.
func (g *participant) all() int { return g.stages[0].Stages }

func (g *participant) diffuse(o DiffusionOptions) (partition.Partition, Descent, error) {
	d := Descent{Kept: true}
	present, err := g.cuts()
	if err != nil {
		return nil, d, err
	}
	before, _, err := g.objective(false)
	if err != nil {
		return nil, d, err
	}
	end, err := g.improve(o.withDefaults(g.all()), present, &d)
	if err != nil {
		return nil, d, err
	}
	cuts := present
	if end.improves(before) {
		d.Kept = false
		if cuts, err = g.cuts(); err != nil {
			return nil, d, err
		}
	}
	if left := min(before.excess, end.excess); left > 0 {
		return nil, d, fmt.Errorf("diffusion found no cuts that every stage can hold; its best are %d bytes over capacity in all", left)
	}
	return cuts, d, nil
}

// improve goes through the phases and returns where the stages end. Collective.
func (g *participant) improve(o DiffusionOptions, present partition.Partition, d *Descent) (end objective, err error) {
	if err := g.meet(); err != nil {
		return end, err
	}
	targets, err := g.diffuseLoads(o, d)
	if err != nil {
		return end, err
	}
	cuts, err := g.sweep(targets, d)
	if err != nil {
		return end, err
	}
	if cuts != nil { // else phase 3 looks for some that stages can hold
		if err := g.shift(present, cuts); err != nil {
			return end, err
		}
	}
	return g.descend(d)
}
