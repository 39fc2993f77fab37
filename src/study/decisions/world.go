package decisions

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/partition"
	"dynmo/src/plan/search"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// Scenario is what truly changes in a run, besides a drift.
type Scenario string

// Scenarios. Changes are announced, as pruning announces them; a slow rank is not.
const (
	Constant Scenario = "constant"
	Changes  Scenario = "changes" // weights of some blocks are pruned at known steps
	SlowRank Scenario = "slow"    // one rank is slower for good from a step on
)

const (
	// every is the steps from one decision to the next.
	every = 5
	// changeEvery is the steps from one change to the next: ten decisions to answer it.
	changeEvery = 50
	// slowFrom and slowTimes say from which step on a rank is how many times slower.
	slowFrom, slowTimes = 100, 1.5
	// changed is how many times its optimum a change makes the bottleneck of what were
	// the best cuts, at least.
	changed = 1.1
)

// Case is everything of a run that no balancer can influence.
type Case struct {
	Family   string
	Noise    Noise
	Scenario Scenario
	Seed     uint64
	Size
}

// Size is how large runs are.
type Size struct{ Stages, Microbatches, Steps int }

// phase is steps in which the chain does not change in a way that is announced.
type phase struct {
	chain
	step   int
	layers []cost.Layer // with true seconds on a rank of speed 1, without drift
}

// world is a case, drawn.
type world struct {
	Case
	*draws
	schedule schedule.Schedule
	phases   []phase
	slowRank int
}

// newWorld draws a case. It panics on a family that there is not.
func newWorld(c Case) (*world, error) {
	k := slices.IndexFunc(families, func(f family) bool { return f.name == c.Family })
	if k < 0 {
		panic("decisions: unknown family " + c.Family)
	}
	w := &world{Case: c, slowRank: random.Keyed(c.Seed, streamSlow).IntN(c.Stages)}
	var err error
	if w.schedule, err = schedule.New(schedule.Kind1F1B, c.Stages, 1, c.Microbatches); err != nil {
		return nil, err
	}
	first := newChain(families[k], c.Stages, c.Seed)
	if err := w.begin(0, first); err != nil {
		return nil, err
	}
	w.draws = newDraws(c.Noise, c.Seed, c.Steps, c.Stages, len(first.seconds))
	if c.Scenario != Changes {
		return w, nil
	}
	rnd := random.Keyed(c.Seed, streamChanges)
	for step := changeEvery; step < c.Steps; step += changeEvery {
		next, ok := w.last().change(rnd, c.Stages)
		if !ok {
			break // hardly any weights are left to prune
		}
		if err := w.begin(step, next); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *world) last() chain { return w.phases[len(w.phases)-1].chain }

// begin adds a phase.
func (w *world) begin(step int, c chain) error {
	layers, err := c.outline()
	if err != nil {
		return fmt.Errorf("decisions: %w", err)
	}
	w.phases = append(w.phases, phase{c, step, layers})
	return nil
}

// change prunes a random segment of the chain, a quarter to a half of it, to 30 to
// 80 % of what is left there, such that the best cuts before are no longer good.
func (c chain) change(rnd *rand.Rand, stages int) (chain, bool) {
	const tries = 200
	before, _ := optimum(c.seconds, stages, nil)
	n, layers := len(c.kept), c.shape.Chain()
	for range tries {
		next := chain{shape: c.shape, kept: slices.Clone(c.kept), seconds: slices.Clone(c.seconds)}
		length, share := n/4+rnd.IntN(n/4+1), 0.3+0.5*rnd.Float64()
		first := rnd.IntN(n - length + 1)
		for l, d := range layers {
			if l >= first && l < first+length && d.Block >= 0 {
				next.kept[l] *= share
				next.seconds[l] = next.seconds[l].Scale(sparse(next.kept[l]) / sparse(c.kept[l]))
			}
		}
		if _, best := optimum(next.seconds, stages, nil); bottleneck(next.seconds, before, nil) >= changed*best {
			return next, true
		}
	}
	return c, false
}

// settings returns the settings of a run.
func (w *world) settings(balancer, every string) config.Config {
	c := config.Default()
	shape := w.phases[0].shape
	m := &c.Model
	m.Blocks, m.Hidden, m.Heads, m.Sequence, m.Vocab = shape.Blocks, shape.Hidden, shape.Heads, shape.Sequence, shape.Vocab
	m.Tied, m.HeadShards, m.Grain = shape.Tied, shape.HeadShards, "block"
	if shape.HalfGrain {
		m.Grain = "half"
	}
	c.Parallel = config.Parallel{Stages: w.Stages, Replicas: 1, Microbatches: w.Microbatches, MicrobatchSize: 1}
	c.Balance.Kind, c.Balance.Every = balancer, every
	c.Comm.LatencySeconds, c.Comm.BandwidthBytes = 0, 0
	c.Run.Seed, c.Train.Steps = w.Seed, w.Steps
	return c
}

// planner returns the planner of a run.
func (w *world) planner(balancer, every string) (*search.Planner, error) {
	return search.New(w.settings(balancer, every), sim.Uniform(0, 0), nil)
}

// phase returns the phase of a step.
func (w *world) phase(step int) *phase {
	k := len(w.phases) - 1
	for w.phases[k].step > step {
		k--
	}
	return &w.phases[k]
}

// changes reports whether an announced change comes before a step.
func (w *world) changes(step int) bool { return step > 0 && w.phase(step).step == step }

// change returns how the model changes before a step, as pruning announces it.
func (w *world) change(step int) dynamic.Change {
	if !w.changes(step) {
		return dynamic.Change{}
	}
	return dynamic.Change{Kind: "prune", Structure: true, Costs: true}
}

// truth returns what layers truly cost at a step.
func (w *world) truth(step int) []cost.Stage {
	seconds := w.phase(step).seconds
	if !w.Noise.drift {
		return seconds
	}
	list := make([]cost.Stage, len(seconds))
	for l, s := range seconds {
		list[l] = s.Scale(w.draws.truth(step, l))
	}
	return list
}

// slow returns by rank how many times slower it lastingly is at a step; nil if all
// are alike.
func (w *world) slow(step int) []float64 {
	if w.Scenario != SlowRank || step < slowFrom {
		return nil
	}
	list := slices.Repeat([]float64{1}, w.Stages)
	list[w.slowRank] = slowTimes
	return list
}

// passes sets what all passes of a layer take in a step on a rank without noise of
// its own: by microbatch.
func (w *world) passes(step, layer int, truth cost.Stage, out []cost.Stage) {
	factors := w.spans(step, layer, 3*len(out))
	for m := range out {
		f := factors[3*m : 3*m+3]
		out[m] = cost.Stage{Forward: truth.Forward * f[0], Input: truth.Input * f[1], Weight: truth.Weight * f[2]}
	}
}

// on returns how many times longer all passes of a step take on a rank.
func (w *world) on(step, rank int) float64 {
	factor := w.rank(step, rank)
	if slow := w.slow(step); slow != nil {
		factor *= slow[rank]
	}
	return factor
}

// ticks are what measured seconds are multiples of the inverse of. So sums of them are
// exact, in whichever order: a run on ranks and a simulated one agree in every bit.
const ticks = 1 << 40

// tick rounds seconds.
func tick(s cost.Stage) cost.Stage {
	round := func(x float64) float64 { return math.Round(x*ticks) / ticks }
	return cost.Stage{Forward: round(s.Forward), Input: round(s.Input), Weight: round(s.Weight)}
}

// problem states what is to be cut.
func problem(seconds []cost.Stage, stages int, slow []float64) balance.Problem {
	p := balance.Problem{Stages: stages, Slow: slow}
	for _, s := range seconds {
		p.Seconds = append(p.Seconds, s.Seconds())
	}
	return p
}

// optimum returns the best cuts and their true bottleneck.
func optimum(seconds []cost.Stage, stages int, slow []float64) (partition.Partition, float64) {
	r, err := balance.Partition(problem(seconds, stages, slow))
	if err != nil {
		panic("decisions: " + err.Error()) // true seconds are positive, and there are more layers than stages
	}
	return r.Cuts, r.Bottleneck
}

// bottleneck returns the true bottleneck of some cuts.
func bottleneck(seconds []cost.Stage, cuts partition.Partition, slow []float64) float64 {
	most := 0.0
	for _, s := range stageCosts(seconds, cuts, slow) {
		most = max(most, s.Seconds())
	}
	return most
}

// stageCosts returns what stages truly cost at some cuts.
func stageCosts(seconds []cost.Stage, cuts partition.Partition, slow []float64) []cost.Stage {
	list := make([]cost.Stage, cuts.Stages())
	for stage := range list {
		lo, hi := cuts.Range(stage)
		for _, s := range seconds[lo:hi] {
			list[stage] = list[stage].Plus(s)
		}
		if slow != nil {
			list[stage] = list[stage].Scale(slow[stage])
		}
	}
	return list
}
