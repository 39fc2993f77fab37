package balance

import (
	"cmp"
	"slices"
)

// coefficient returns the diffusion coefficient of two neighbours: the work that flows between them
// in a round, per second of difference. 1/2 is the best constant for a path of equal stages: the
// second eigenvalue of a round is then cos(π/P) (Xu & Lau 1997). With different speeds, division by
// the larger factor keeps a stage from giving away more than its excess over its neighbours.
func coefficient(slow, neighbour float64) float64 { return 0.5 / max(slow, neighbour) }

// potential returns φ = Σ_{u<v} |x_u - x_v| over the loads of stages (paper, proof of lemma 2). If
// stages differ in speed, each pair is weighted by the product of its speeds, where the fastest
// stage has speed 1. With these weights φ never rises from one round to the next, as for equal
// stages.
func potential(loads, slow []float64) float64 {
	order := make([]int, len(loads))
	for s := range order {
		order[s] = s
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(loads[a], loads[b]) })
	fastest := slices.Min(slow)
	// The gap between two consecutive loads in order counts once for every pair with one stage
	// below the gap and one above.
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

// done reports whether phase 1 may stop: φ is below Gamma times the total load, or MaxRounds is
// reached.
func (o DiffusionOptions) done(phi float64, loads []float64, rounds int) bool {
	total := 0.0
	for _, x := range loads {
		total += x
	}
	return phi <= o.Gamma*total || rounds >= o.MaxRounds
}

// looks reports whether phase 1 computes the potential after this number of rounds.
func (o DiffusionOptions) looks(rounds int) bool {
	return rounds%o.Look == 0 || rounds == o.MaxRounds
}

// diffuseLoads is phase 1. targets[s] is the place in the chain's work where stage s should begin,
// by the flow over the edge before it. The first stage begins at 0. Collective.
func (g *participant) diffuseLoads(o DiffusionOptions, d *Descent) (targets []float64, err error) {
	n, first := len(g.stages), g.first()
	work, slow, fixed := make([]float64, n), make([]float64, g.all()), make([]float64, g.all())
	ghosted := make([]float64, n+2) // loads of this participant's stages, with one load of a neighbour on each side
	loads := ghosted[1 : n+1]
	for s := range g.stages {
		work[s] = g.stages[s].sum().Seconds
		loads[s] = g.stages[s].load(work[s])
	}
	for s := range slow {
		slow[s], fixed[s] = g.kinds[s].Slow, g.kinds[s].Fixed
	}
	known, err := g.gather(work)
	if err != nil {
		return nil, err
	}
	targets = make([]float64, g.all())
	for s, w := range known[0][:g.all()-1] {
		targets[s+1] = targets[s] + w
	}
	// Edge s lies before the participant's stage s. No work flows over the two ends of the
	// pipeline: their coefficients stay 0.
	coefficients, flow, total := make([]float64, n+1), make([]float64, n+1), make([]float64, n+1)
	for s := max(0, 1-first); s < min(n+1, g.all()-first); s++ {
		coefficients[s] = coefficient(slow[first+s-1], slow[first+s])
	}
	for ; ; d.Rounds++ {
		if o.looks(d.Rounds) {
			known, err := g.gather(loads)
			if err != nil {
				return nil, err
			}
			phi := potential(known[0], slow)
			d.Potential = append(d.Potential, phi)
			if o.done(phi, known[0], d.Rounds) {
				break
			}
		}
		left, right, err := g.neighbours(loads[:1], loads[n-1:])
		if err != nil {
			return nil, err
		}
		copy(ghosted[:1], left)
		copy(ghosted[n+1:], right)
		for s := range flow {
			flow[s] = float64(coefficients[s] * (ghosted[s] - ghosted[s+1]))
			total[s] += flow[s]
		}
		for s := range work {
			work[s] += flow[s] - flow[s+1]
			loads[s] = float64(slow[first+s]*work[s]) + fixed[first+s]
		}
	}
	known, err = g.gather(total[:n])
	for s, flow := range known[0] {
		targets[s] -= flow
	}
	return targets, err
}
