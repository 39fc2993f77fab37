package report

import (
	"fmt"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/lab/verdict"
	"dynmo/src/layout"
	"dynmo/src/record"
)

// baseline compares a phase of the run with other cuts. The time of a step in other cuts is the
// measured time of a step, times a ratio. The ratio is that of simulations of both cuts on the
// costs of the phase. Seconds are of a step, medians.
type baseline struct {
	steps  segment
	Used   float64 // in the layout of the run
	Static float64 // in the layout of the run's first step, or of the resume on other ranks
	Best   float64 // in the best cuts for these costs, with the same schedule
}

// mostBaselines bounds the number of simulated phases. If there are more, only every second (third,
// …) phase is simulated, and stands for the phases after it.
const mostBaselines = 256

// baselines returns the baselines of the run's phases, none if costs were not recorded.
func (r Run) baselines() ([]baseline, error) {
	ran := slices.DeleteFunc(slices.Clone(r.Costs), func(p record.Phase) bool { return p.Run == nil })
	every := (len(ran) + mostBaselines - 1) / mostBaselines
	stay := make([]layout.Layout, len(ran))
	for i, p := range ran {
		stay[i] = p.Run.Stay(stay[max(0, i-1)])
		if i == 0 {
			stay[i] = p.Run.Layout
		}
	}
	var list []baseline
	for i := 0; i < len(ran); i += every {
		r.Bar.Show(int64(i), int64(len(ran)))
		end := r.last() + 1
		if i+every < len(ran) {
			end = ran[i+every].Step
		}
		s := segment{r.index(ran[i].Step), r.index(end)}
		if s.lo >= s.hi {
			continue
		}
		b := baseline{steps: s, Used: middle(r.Metrics[s.lo:s.hi], stepSeconds)}
		if err := b.simulate(ran[i], stay[i]); err != nil {
			return nil, fmt.Errorf("%s: costs of step %d: %w", r.file(record.CostsFile), ran[i].Step, err)
		}
		list = append(list, b)
	}
	return list, nil
}

// simulate sets Static and Best. first is the first layout.
func (b *baseline) simulate(p record.Phase, first layout.Layout) error {
	l, costs := p.Run.Layout, p.Costs()
	if first.Cuts.Layers() != l.Cuts.Layers() {
		return fmt.Errorf("%d layers, the run began with %d", l.Cuts.Layers(), first.Cuts.Layers())
	}
	problem := balance.New(costs.Mean().Fitted(l.Map().Virtual()), balance.ByTime, l.Map().Virtual(), nil, 0)
	optimum, err := balance.Partition(problem)
	if err != nil {
		return err
	}
	used := verdict.Makespan(p.Run, l, costs)
	static := verdict.Makespan(p.Run, first, costs.Regroup(l.Schedule.Microbatches, first.Schedule.Microbatches))
	best := min(used, static, verdict.Makespan(p.Run, l.With(optimum.Cuts, l.Schedule), costs))
	b.Static, b.Best = b.Used, b.Used
	if used > 0 {
		b.Static, b.Best = b.Used*static/used, b.Used*best/used
	}
	return nil
}
