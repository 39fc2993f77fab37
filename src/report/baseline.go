package report

import (
	"fmt"
	"slices"

	"dynmo/src/balance"
	"dynmo/src/layout"
	"dynmo/src/plan/worth"
	"dynmo/src/profile"
	"dynmo/src/record"
)

// baseline is a phase of the run beside what its steps would have taken in other
// cuts: the measured seconds of a step, times what simulating both cuts on the
// phase's costs says. Seconds are of a step, medians.
type baseline struct {
	steps  segment
	Used   float64 // as it ran
	Static float64 // in the layout that the run began with, or was resumed with on other ranks
	Best   float64 // in the best cuts for these costs, in the same schedule
}

// mostBaselines bounds the phases that are simulated. Of more, every second, third
// … stands for those behind it.
const mostBaselines = 256

// baselines returns the phases of the run, none where costs were not recorded.
func (r Run) baselines() ([]baseline, error) {
	ran := slices.DeleteFunc(slices.Clone(r.Costs), func(p profile.Phase) bool { return p.Run == nil })
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

// simulate sets what the phase would have taken in its first cuts and in the best.
func (b *baseline) simulate(p profile.Phase, first layout.Layout) error {
	l, costs := p.Run.Layout, p.Costs()
	if first.Cuts.Layers() != l.Cuts.Layers() {
		return fmt.Errorf("%d layers, the run began with %d", l.Cuts.Layers(), first.Cuts.Layers())
	}
	problem := balance.New(costs.Mean().Fitted(l.Map().Virtual()), balance.ByTime, l.Map().Virtual(), nil, 0)
	optimum, err := balance.Partition(problem)
	if err != nil {
		return err
	}
	used := worth.Makespan(p.Run, l, costs)
	static := worth.Makespan(p.Run, first, costs.Regroup(l.Schedule.Microbatches, first.Schedule.Microbatches))
	best := min(used, static, worth.Makespan(p.Run, l.With(optimum.Cuts, l.Schedule), costs))
	b.Static, b.Best = b.Used, b.Used
	if used > 0 {
		b.Static, b.Best = b.Used*static/used, b.Used*best/used
	}
	return nil
}
