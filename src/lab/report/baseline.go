package report

import "dynmo/src/lab/verdict"

// baseline compares a phase of the run with other cuts. The time of a step in other cuts is the
// measured time of a step, times the ratio of simulations of both cuts (verdict.Phases). Seconds are
// of a step, medians.
type baseline struct {
	steps  segment
	Used   float64 // in the layouts of the run
	Static float64 // in the layout of the run's first step, or of the resume on other ranks
	Best   float64 // in the best layout for these costs
}

// baselines returns the baselines of the run's phases, none if costs were not recorded.
func (r Run) baselines() (list []baseline, err error) {
	ran, err := r.ran()
	if err != nil || ran == nil {
		return nil, err
	}
	phases := verdict.Phases(ran.Problem, ran.Series)
	for i, p := range phases {
		end := r.last() + 1
		if i+1 < len(phases) {
			end = phases[i+1].Step
		}
		s := segment{r.index(p.Step), r.index(end)}
		if s.lo >= s.hi || p.Used <= 0 {
			continue
		}
		used := float64(r.middle(s, stepSeconds))
		list = append(list, baseline{s, used, used * p.Static / p.Used, used * p.Best / p.Used})
	}
	return list, nil
}
