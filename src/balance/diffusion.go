package balance

import (
	"fmt"
	"slices"

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
	Rounds    int       // rounds of phase 1
	Potential []float64 // φ of phase 1 at the start and at every look, in seconds
	Recuts    []Recut   // phase 2 from every start
	Kept      bool      // whether no new cuts were better and the present ones stay
}

// Recut is the record of phase 2 from one start.
type Recut struct {
	Start   string    // "present", or how the targets of phase 1 were rounded
	Squares []float64 // Σ load² before the first round and after each
	Excess  []int64   // bytes over capacity, summed over stages, likewise
}

// Rounds returns the number of rounds.
func (r Recut) Rounds() int { return len(r.Squares) - 1 }

// Diffusion balances by exchange between neighbours, with all stages in this
// process: Diffuse without messages. It begins at the present cuts. Every
// stage has a layer, before and after.
//
// Phase 1 diffuses loads as if they could be divided at will (first-order
// diffusion on the path of stages, Cybenko 1989) and so finds where each cut
// should lie. Phase 2 re-cuts three neighbouring stages at a time until no
// three can be cut better; it starts from the present cuts and from each
// rounding of phase 1's, and the best end wins. Cuts with no smaller
// bottleneck than the present ones are dropped. It is deterministic, near the
// optimum but not always on it. It is an error if it finds no cuts that every
// stage can hold, which from present cuts that fit cannot happen.
//
// Departs: the paper's Algorithm 3 moves layers between any two ranks; see
// DiffusionPaper.
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
// process of its own. Each calls it with what it knows (Problem.Stage) and
// gets the new cuts of all stages and the record, the same on every one.
// Collective. Numbers of bytes must stay below 2^53. Errors are the link's, and
// Diffusion's.
//
// Loads of phase 1 and layers' numbers of phase 2 go between neighbours only.
// Reductions of a few numbers for each stage tell all when to stop; layers
// themselves do not move here.
func Diffuse(me Stage, link Link, o DiffusionOptions) (partition.Partition, Descent, error) {
	g := participant{stages: []Stage{me}, link: link}
	return g.diffuse(o)
}

// participant is one side of the links: it holds either one stage of the
// pipeline or, in memory, all of them.
type participant struct {
	stages []Stage
	link   Link
}

// first returns the index of the participant's first stage.
func (g *participant) first() int { return g.stages[0].Index }

// all returns the number of stages of the pipeline.
func (g *participant) all() int { return g.stages[0].Stages }

func (g *participant) diffuse(o DiffusionOptions) (partition.Partition, Descent, error) {
	o = o.withDefaults(g.all())
	d := Descent{Kept: true}
	present, err := g.cuts()
	if err != nil {
		return nil, d, err
	}
	best, _, err := g.objective(false)
	if err != nil {
		return nil, d, err
	}
	prefix, targets, err := g.diffuseLoads(o, &d)
	if err != nil {
		return nil, d, err
	}
	starts, err := g.starts(present, prefix, targets)
	if err != nil {
		return nil, d, err
	}
	cuts, home := present, slices.Clone(g.stages)
	for _, start := range starts {
		copy(g.stages, home)
		if err := g.shift(present, start.cuts); err != nil {
			return nil, d, err
		}
		end, err := g.descend(&d, start.name)
		if err != nil {
			return nil, d, err
		}
		if !end.improves(best) {
			continue
		}
		if cuts, err = g.cuts(); err != nil {
			return nil, d, err
		}
		best, d.Kept = end, false
	}
	if best.excess > 0 {
		return nil, d, fmt.Errorf("diffusion found no cuts that every stage can hold; its best are %d bytes over capacity in all", best.excess)
	}
	return cuts, d, nil
}

// start is a partition that phase 2 starts from.
type start struct {
	name string
	cuts partition.Partition
}

// starts returns the present cuts and every rounding of phase 1's targets,
// made legal. Collective.
func (g *participant) starts(present partition.Partition, prefix, targets []float64) ([]start, error) {
	list := []start{{"present", present}}
	var rounded [len(roundings)][]float64
	for r := range rounded {
		rounded[r] = make([]float64, g.all()+1)
	}
	for s := range g.stages {
		g.stages[s].resolve(prefix, targets, rounded)
	}
	for r, name := range roundings {
		if err := g.link.Max(rounded[r]); err != nil {
			return nil, err
		}
		list = append(list, start{name, legal(rounded[r], present.Layers())})
	}
	return list, nil
}
