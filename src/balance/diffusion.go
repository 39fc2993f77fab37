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

// record notes where phase 2 stands.
func (r *Recut) record(now standing) {
	r.Squares = append(r.Squares, now.squares)
	r.Excess = append(r.Excess, now.excess)
}

// Diffusion balances by exchange between neighbours, with all stages in this
// process: the same decisions as Diffuse, without its messages. It begins at
// the present cuts. Every stage has a layer, before and after.
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
	stages := p.stagesAt(present)
	best, cuts := standingOf(stages), present

	var d Descent
	prefix, targets := d.diffuseLoads(stages, o.withDefaults(p.Stages))
	rounded := roundedCuts(p.Stages)
	for s := range stages {
		stages[s].resolve(prefix, targets, rounded)
	}
	d.Kept = true
	for _, start := range starts(present, rounded) {
		stages := p.stagesAt(start.cuts)
		end := d.descend(stages, start.name)
		if improves(end, best) {
			best, cuts, d.Kept = end, cutsOf(stages), false
		}
	}
	if best.excess > 0 {
		return Result{}, d, tooFull(best)
	}
	r, err := p.Evaluate(cuts)
	return r, d, err
}

// tooFull is the error of a diffusion that ends with stages over capacity.
func tooFull(end standing) error {
	return fmt.Errorf("diffusion found no cuts that every stage can hold; its best are %d bytes over capacity in all", end.excess)
}

// descend is phase 2 on all stages. It returns where it ends.
func (d *Descent) descend(stages []Stage, start string) standing {
	r := Recut{Start: start}
	now := standingOf(stages)
	r.record(now)
	for idle := 0; idle < turn(len(stages)); {
		changed := false
		first, width := windows(r.Rounds(), len(stages))
		for _, f := range first {
			changed = recut(stages[f:f+width]) || changed
		}
		idle = idleRounds(idle, changed)
		now = standingOf(stages)
		r.record(now)
	}
	d.Recuts = append(d.Recuts, r)
	return now
}

// start is where phase 2 starts from.
type start struct {
	name string
	cuts partition.Partition
}

// roundedCuts returns room for the cuts of every rounding.
func roundedCuts(stages int) [][]float64 {
	cuts := make([][]float64, len(roundings))
	for r := range cuts {
		cuts[r] = make([]float64, stages+1)
	}
	return cuts
}

// starts returns the present cuts and those of every rounding, made legal.
func starts(present partition.Partition, rounded [][]float64) []start {
	list := []start{{"present", present}}
	for r, name := range roundings {
		list = append(list, start{name, legal(rounded[r], present.Layers())})
	}
	return list
}

// stagesAt returns what every stage knows at these cuts.
func (p Problem) stagesAt(cuts partition.Partition) []Stage {
	stages := make([]Stage, p.Stages)
	for s := range stages {
		stages[s] = p.Stage(cuts, s)
	}
	return stages
}

// idleRounds counts rounds of phase 2 without a change.
func idleRounds(idle int, changed bool) int {
	if changed {
		return 0
	}
	return idle + 1
}

// improves reports whether new cuts are worth their moves: fewer bytes over
// capacity, or a smaller bottleneck with as many.
func improves(next, before standing) bool {
	return next.excess < before.excess || next.excess == before.excess && next.worst < before.worst
}

// diffuseLoads is phase 1. It returns where each stage's work begins in the
// chain's, and where the flow over each edge wants the cut behind each stage
// but the last.
func (d *Descent) diffuseLoads(stages []Stage, o DiffusionOptions) (prefix, targets []float64) {
	n := len(stages)
	work, loads, slow := make([]float64, n), make([]float64, n), make([]float64, n)
	for s := range stages {
		work[s], slow[s] = stages[s].work(), stages[s].Slow
		loads[s] = stages[s].load(work[s])
	}
	prefix = prefixes(work)
	shares := make([]float64, n-1)
	for s := range shares {
		shares[s] = share(slow[s], slow[s+1])
	}
	total, now := make([]float64, n-1), make([]float64, n+1) // now[s] flows into stage s from the left
	for ; ; d.Rounds++ {
		if o.looks(d.Rounds) {
			phi := potential(loads, slow)
			d.Potential = append(d.Potential, phi)
			if o.done(phi, loads, d.Rounds) {
				break
			}
		}
		for s := range shares {
			now[s+1] = float64(shares[s] * (loads[s] - loads[s+1]))
			total[s] += now[s+1]
		}
		for s := range stages {
			work[s] += now[s] - now[s+1]
			loads[s] = stages[s].load(work[s])
		}
	}
	targets = make([]float64, n-1)
	for s := range targets {
		targets[s] = prefix[s+1] - total[s]
	}
	return prefix, targets
}
