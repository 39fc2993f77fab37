package balance

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/partition"
)

// coefficient returns the diffusion coefficient of two neighbours: the work
// that flows between them in a round per second of difference. 1/2 is the
// best constant for a path of equal stages: the second eigenvalue of a round
// is then cos(π/P) (Xu & Lau 1997). With speeds it keeps a stage from giving
// more than it has above its neighbours.
func coefficient(slow, neighbour float64) float64 { return 0.5 / max(slow, neighbour) }

// potential returns φ = Σ_{u<v} |x_u - x_v| over the loads of stages (paper,
// proof of lemma 2). Where stages differ in speed a pair counts by the product
// of its speeds, the fastest stage's being 1: so weighted, φ never rises from
// one round to the next, as it does not for equal stages.
func potential(loads, slow []float64) float64 {
	order := make([]int, len(loads))
	for s := range order {
		order[s] = s
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(loads[a], loads[b]) })
	fastest := slices.Min(slow)
	// Between two loads that follow each other in order lie all pairs of one
	// stage below and one above.
	total, below := 0.0, 0.0
	for _, s := range slow {
		total += fastest / s
	}
	phi := 0.0
	for i := 0; i+1 < len(order); i++ {
		below += fastest / slow[order[i]]
		phi += below * (total - below) * (loads[order[i+1]] - loads[order[i]])
	}
	return phi
}

// done reports whether phase 1 may stop: φ is below Gamma of the total load,
// or the rounds are used up.
func (o DiffusionOptions) done(phi float64, loads []float64, rounds int) bool {
	total := 0.0
	for _, x := range loads {
		total += x
	}
	return phi <= o.Gamma*total || rounds >= o.MaxRounds
}

// looks reports whether the potential is looked at after so many rounds.
func (o DiffusionOptions) looks(rounds int) bool {
	return rounds%o.Look == 0 || rounds == o.MaxRounds
}

// diffuseLoads is phase 1. It returns where each stage's work begins in the
// chain's, and where the flow over each edge wants the cut behind each stage
// but the last. Collective.
func (g *participant) diffuseLoads(o DiffusionOptions, d *Descent) (prefix, targets []float64, err error) {
	n, first := len(g.stages), g.first()
	work, slow := make([]float64, n), make([]float64, n)
	ghosted := make([]float64, n+2) // the stages' loads between those of both neighbours
	loads := ghosted[1 : n+1]
	for s := range g.stages {
		work[s], slow[s] = g.stages[s].sum().Seconds, g.stages[s].Slow
		loads[s] = g.stages[s].load(work[s])
	}
	known, err := g.gather(work, slow)
	if err != nil {
		return nil, nil, err
	}
	prefix, slow = prefixes(known[0]), known[1]
	// Edge s lies before the participant's stage s. No work flows over the
	// pipeline's ends, whose coefficients stay 0.
	coefficients, flow, total := make([]float64, n+1), make([]float64, n+1), make([]float64, n+1)
	for s := max(0, 1-first); s < min(n+1, g.all()-first); s++ {
		coefficients[s] = coefficient(slow[first+s-1], slow[first+s])
	}
	for ; ; d.Rounds++ {
		if o.looks(d.Rounds) {
			known, err := g.gather(loads)
			if err != nil {
				return nil, nil, err
			}
			phi := potential(known[0], slow)
			d.Potential = append(d.Potential, phi)
			if o.done(phi, known[0], d.Rounds) {
				break
			}
		}
		left, right, err := g.neighbours(loads[:1], loads[n-1:])
		if err != nil {
			return nil, nil, err
		}
		copy(ghosted[:1], left)
		copy(ghosted[n+1:], right)
		for s := range flow {
			flow[s] = float64(coefficients[s] * (ghosted[s] - ghosted[s+1]))
			total[s] += flow[s]
		}
		for s := range work {
			work[s] += flow[s] - flow[s+1]
			loads[s] = g.stages[s].load(work[s])
		}
	}
	behind := make([]float64, n)
	for s := range behind {
		behind[s] = prefix[first+s+1] - total[s+1]
	}
	known, err = g.gather(behind)
	return prefix, known[0][:g.all()-1], err
}

// prefixes returns where each stage's work begins in the chain's, and the
// chain's whole work at the end.
func prefixes(work []float64) []float64 {
	prefix := make([]float64, len(work)+1)
	for s, w := range work {
		prefix[s+1] = prefix[s] + w
	}
	return prefix
}

// roundings are the ways in which a target becomes a layer boundary. Phase 2
// is tried from each: none is always best.
var roundings = [...]string{"nearest", "before", "behind"}

// resolve finds the layer boundaries for every target that lies in this
// stage's part of the chain's work. targets[s] is where the cut behind stage s
// should lie; if that is this stage's to find, cuts[r][s+1] is set to the
// boundary of rounding r (of two nearest ones, the earlier). Targets outside
// the chain are the first and the last stage's.
func (s *Stage) resolve(prefix, targets []float64, cuts [len(roundings)][]float64) {
	for i, target := range targets {
		if target < prefix[s.Index] && s.Index > 0 || target >= prefix[s.Index+1] && s.Index < s.Stages-1 {
			continue
		}
		work := prefix[s.Index]
		before, behind := s.First, s.First // boundaries on both sides of the target
		under, over := work, work          // the work up to them
		for l := 0; l < len(s.Layers) && over < target; l++ {
			work += s.Layers[l].Seconds
			before, under = behind, over
			behind, over = s.First+l+1, work
		}
		nearest := before
		if math.Abs(over-target) < math.Abs(target-under) {
			nearest = behind
		}
		for r, boundary := range [...]int{nearest, before, behind} {
			cuts[r][i+1] = float64(boundary)
		}
	}
}

// legal returns cuts that give every stage a layer and lie as near to those
// given as going through them from the left allows.
func legal(cuts []float64, layers int) partition.Partition {
	stages := len(cuts) - 1
	out := make(partition.Partition, stages+1)
	for s := 1; s < stages; s++ {
		out[s] = min(max(int(cuts[s]), out[s-1]+1), layers-(stages-s))
	}
	out[stages] = layers
	return out
}
