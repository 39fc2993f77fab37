package balance

import (
	"fmt"

	"dynmo/src/partition"
)

// DiffusionOptions say when phase 1 of diffusion stops.
type DiffusionOptions struct {
	Gamma     float64 // potential below which phase 1 stops, as a share of the total load; 0 means 1e-3
	MaxRounds int     // phase 1 stops after this number of rounds; 0 means 10000
	Look      int     // rounds between two computations of the potential, each a reduction; 0 means the number of stages
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
	Potential []float64 `json:"potential"` // φ of phase 1 in seconds, at the start and at every Look
	Sweeps    int       `json:"sweeps"`    // sweeps of phase 2
	Squares   []float64 `json:"squares"`   // Σ load² of phase 3, at the start and after each round
	Excess    []int64   `json:"excess"`    // bytes over capacity, summed over stages, at the start of phase 3 and after each of its rounds
	Kept      bool      `json:"kept"`      // no better cuts were found: the present cuts stay
}

// Diffusion balances by exchange between neighbours. It is Diffuse with all stages in this process,
// without messages. It begins at the present cuts. Every stage has at least one layer, before and
// after.
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
// Diffusion drops new cuts that do not lower the bottleneck of the present ones. It is
// deterministic. Without memory limits, and on stages of one speed, it finds the smallest possible
// bottleneck, up to rounding. In other cases it mostly does (see sweep). It returns an error if it
// finds no cuts that fit into every stage's memory. If the present cuts fit, this cannot happen.
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

// Diffuse is Diffusion by messages between neighbours, with every stage in a process of its own.
// Each process passes its own stage (Problem.Stage). All get the same new cuts of all stages and
// the same record. Collective. Numbers of bytes must stay below 2^53. Errors are those of the link
// and of Diffusion.
//
// Only neighbours exchange messages. A round of phase 1 sends one number on each edge; a sweep of
// phase 2 sends at most 14. Phase 3 sends the numbers of layers. The P-1 messages of a sweep follow
// one another. Ten or twenty sweeps find the bottleneck; that takes fewer messages than phase 1.
// Reductions of a few numbers per stage share three things: the speeds and memory of all stages,
// the result of a sweep, and the decision to stop. Diffuse does not move the layers themselves.
func Diffuse(me Stage, link Link, o DiffusionOptions) (partition.Partition, Descent, error) {
	g := participant{stages: []Stage{me}, link: link}
	return g.diffuse(o)
}

// participant is one side of a link. It has either one stage of the pipeline or, in memory, all
// stages.
type participant struct {
	stages []Stage
	link   Link
	kinds  []Stage // all stages of the pipeline, without their layers
}

// first returns the index of the participant's first stage.
func (g *participant) first() int { return g.stages[0].Index }

// all returns the number of stages in the pipeline.
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

// improve runs the three phases and returns the objective of all stages at the end. Collective.
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
	if cuts != nil { // else phase 3 looks for cuts that fit into memory
		if err := g.shift(present, cuts); err != nil {
			return end, err
		}
	}
	return g.descend(d)
}
