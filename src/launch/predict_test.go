package launch

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/kernel/cpu"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/study"
)

// journal keeps the costs of a run.
type journal struct {
	balances
	series profile.Series
}

func (j *journal) Costs(s profile.Phase) error {
	j.series = append(j.series, s)
	return nil
}

// Step wants busy and idle time by cause to be the makespan.
func (j *journal) Step(m record.Metrics) error {
	if parts := m.Idle.Makespan(); math.Abs(parts-float64(m.Makespan)) > 0.01*float64(m.Makespan) {
		return fmt.Errorf("step %d: busy and idle time sum to %v, the makespan is %v", m.Step, parts, m.Makespan)
	}
	return nil
}

// TestPrediction: of a pruning run on 8 stages and the virtual clock, the
// simulator knows the makespan before and after every balancing within 5 %, from
// the costs that the run recorded, every microbatch with the share that it took. In
// orders made for the costs nothing waits that could take up a disturbance of a single
// step, of which the costs of a phase know the mean: there half of the phases are known
// as well, and none is far off.
// Predictions from costs before a change of the layout, of the steps after it, are
// further off, by how far one phase on a busy machine is from the next.
func TestPrediction(t *testing.T) {
	if !cpu.Built {
		t.Skip("built without the tag blas: the kernels of ref take minutes for layers that are worth measuring")
	}
	c := small(t)
	c.Run.Clock = "virtual"
	c.Model.Blocks, c.Model.Hidden, c.Model.Heads, c.Model.Sequence = 12, 128, 4, 48
	c.Parallel.Stages, c.Parallel.Microbatches, c.Train.Steps = 8, 8, 24
	c.Prune.Start, c.Prune.Every = 4, 4
	if long {
		c.Parallel.Microbatches, c.Train.Steps = 16, 36
		c.Prune.Start, c.Prune.Every = 6, 6
	}
	c.Prune.Initial, c.Prune.Final, c.Prune.CSRFrom = 0.4, 0.9, 0.5
	c.Model.Grain, c.Balance.Every = "half", "2"
	var ahead []float64
	for _, kind := range []string{"1f1b", "zb-v", "auto"} {
		c.Schedule.Kind = kind
		log := &journal{}
		expect.OK(t, trainLocally(t, c, log, func(*rank) error { return nil }))
		replayed := study.Replay(log.series)
		most := 0.05
		if kind != "1f1b" {
			most = 0.25
		}
		var off []float64
		for _, r := range replayed {
			off = append(off, math.Abs(r.Error()))
			t.Logf("%s, %d steps from %d: measured %.2f ms, predicted %+.1f %%", kind, r.Steps, r.Step, 1e3*r.Measured, 100*r.Error())
			if math.Abs(r.Error()) > most {
				t.Errorf("%s, steps from %d: predicted %v s, measured %v s", kind, r.Step, r.Predicted, r.Measured)
			}
			if r.Ahead > 0 {
				off := r.Ahead/r.Measured - 1
				t.Logf("  from the costs before the layout changed: %+.1f %%", 100*off)
				ahead = append(ahead, math.Abs(off))
			}
		}
		if slices.Sort(off); off[len(off)/2] > 0.05 {
			t.Errorf("%s: off by %v, want at most 5 %% in the median", kind, off)
		}
	}
	slices.Sort(ahead)
	if len(ahead) == 0 || ahead[len(ahead)/2] > 0.25 {
		t.Errorf("off by %v from the costs before the layout changed, want it to change, and at most 0.25 in the median", ahead)
	}
}
