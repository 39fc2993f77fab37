package decisions

import (
	"time"

	"dynmo/src/trace"
)

// Time returns what a decision takes on 24 stages with 96 microbatches, from what
// ranks gathered of the step to the next layout: under noise that always leaves
// something to weigh, with changes that make layers move.
func Time() ([]Figure, error) {
	return timed(Case{
		Family: "heavy", Scenario: Changes, Noise: Noises[1], Seed: 1,
		Size: Size{Stages: 24, Microbatches: 96, Steps: 3 * changeEvery},
	})
}

// timed returns what a decision takes in a case under either policy, and how many
// times the old one's: the medians over steps, after each of which both decide, in
// turn.
func timed(c Case) ([]Figure, error) {
	w, err := newWorld(c)
	if err != nil {
		return nil, err
	}
	var list []Figure
	for _, balancer := range Balancers {
		var pair [2]*competitor
		for i, policy := range Policies {
			if pair[i], err = w.newCompetitor(balancer, "1", policy); err != nil {
				return nil, err
			}
		}
		var took [2][]float64 // milliseconds
		var ratios []float64
		for step := range w.Steps {
			s := w.measure(step)
			for turn := range pair {
				i := (step + turn) % 2
				m := pair[i].measurement(s)
				begin := time.Now()
				if err := pair[i].decide(m, w.change(step)); err != nil {
					return nil, err
				}
				took[i] = append(took[i], 1e3*time.Since(begin).Seconds())
			}
			ratios = append(ratios, took[1][step]/took[0][step])
		}
		list = append(list,
			Figure{Kind: Seconds, Balancer: balancer, Old: trace.Median(took[0]), New: trace.Median(took[1])},
			Figure{Kind: SecondsRatio, Balancer: balancer, Old: 1, New: trace.Median(ratios), Reach: 1})
	}
	return list, nil
}
