package launch

import (
	"fmt"
	"math"
	"testing"

	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/fault"
	"dynmo/src/kernel"
	"dynmo/src/kernel/null"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/train"
)

// balanced is a run, with the steps after which its layers moved and its log lines.
type balanced struct {
	run
	after []int
	said  []string
	late  []record.Event // events about stragglers
}

func (b *balanced) last() record.Metrics { return b.metrics[len(b.metrics)-1] }

func (b *balanced) Say(line string) { b.said = append(b.said, line) }

func (b *balanced) Event(e record.Event) error {
	switch e.Kind {
	case record.Migrate:
		if e.Refused() != "" {
			return nil
		}
		b.after = append(b.after, e.Step)
	case record.Slow:
		b.late = append(b.late, e)
	}
	return b.run.Event(e)
}

// between returns the number of moves in steps [from, to).
func (b *balanced) between(from, to int) (n int) {
	for _, step := range b.after {
		if step >= from && step < to {
			n++
		}
	}
	return n
}

// blocksOf22 trains 22 blocks of 3 ms on four ranks with known costs. slow returns the factor on a
// rank's times.
func blocksOf22(t *testing.T, c config.Config, slow func(rank int) float64, f *fault.Fault) *balanced {
	t.Helper()
	return blocksOf22On(t, c, slow, f, func(_ int, d *cpu.Device) device.Device { return d })
}

// blocksOf22On is blocksOf22 with a device that `on` makes from each rank's CPU.
func blocksOf22On(t *testing.T, c config.Config, slow func(rank int) float64, f *fault.Fault, on func(rank int, d *cpu.Device) device.Device) *balanced {
	t.Helper()
	c.Model.Blocks = 22
	c.Parallel.Stages, c.Parallel.Microbatches = 4, 16
	out := &balanced{}
	made(t, c, out, func(rank int, clock *device.Clock, s *train.Setup) {
		clock.Pause() // known costs only
		s.Device, s.Fault = on(rank, s.Device.(*cpu.Device)), f
		s.Backend = null.New(clock, func(call *kernel.Call) float64 {
			if call.O == 3*c.Model.Hidden { // one product for each block and direction
				return 1e-3 * slow(rank)
			}
			return 0
		})
	}, nil)
	return out
}

// TestSlowRankDoesNotOscillate: one rank of four is twice as slow. Its slowness must not be
// attributed to its layers when they move. Balancing converges to cuts near the best ones for the
// true speeds.
func TestSlowRankDoesNotOscillate(t *testing.T) {
	c := small(t, "dynamic.kind=none")
	c.Train.Steps, c.Balance.Every = 60, "5"
	out := blocksOf22(t, c, func(rank int) float64 { return 1 + float64(rank&1&^(rank>>1)) }, nil)
	if late := out.between(31, 60); len(out.after) == 0 || late > 0 {
		t.Errorf("%d migrations, %d of them after step 30: want some, then none", len(out.after), late)
	}
	// 22 blocks of 3 ms on speeds 1, 1/2, 1, 1: the best shares are 6.3, 3.1, 6.3 and 6.3 blocks.
	// Whole blocks give 7 of 3 ms, or 21 ms.
	if got := float64(out.last().Bottleneck); math.Abs(got-0.021) > 1e-9 {
		t.Errorf("bottleneck %v s with cuts %v, want 0.021 s", got, out.last().LayersPerStage)
	}
}

// TestDrawsMoveNothing: blocks are dropped at random, late blocks more often, in constant shares
// from the second step on. Costs are means over draws. So layers move once to cuts that fit these
// shares, and then stay, whatever is drawn.
func TestDrawsMoveNothing(t *testing.T) {
	c := small(t, "dynamic.kind=layerdrop layerdrop.theta=0.3 layerdrop.gamma=10 train.steps=60 balance.every=2")
	out := blocksOf22(t, c, func(int) float64 { return 1 }, nil)
	if late := out.between(10, 60); len(out.after) == 0 || late > 0 {
		t.Errorf("moves after steps %v: want some, and none after step 10", out.after)
	}
	if cuts := out.last().LayersPerStage; cuts[0] >= cuts[3] {
		t.Errorf("layers on stages %v: want fewer on the first, whose blocks are dropped least", cuts)
	}
}

// TestStraggler: a rank becomes slower for 50 steps. A message reports it within two reports, and
// once. Layers leave the rank once the slowness has lasted, and come back when it is over. Steps
// are then hardly slower than those of a run whose rank is as slow from the start. Nothing
// oscillates.
func TestStraggler(t *testing.T) {
	even := func(int) float64 { return 1 }
	for _, factor := range []float64{2, 4} {
		slowed := &fault.Fault{Kind: fault.Slow, Step: 20, Last: 69, Rank: 1, Factor: factor}
		t.Run(fmt.Sprintf("x%v", factor), func(t *testing.T) {
			expect.NewFault(t, "F10", fmt.Sprintf("kind=slow factor=%v rank=1", factor))
			c := small(t, "dynamic.kind=none")
			c.Train.Steps = 110
			out := blocksOf22(t, c, even, slowed)
			c.Train.Steps = 50
			best := blocksOf22(t, c, func(rank int) float64 { return max(1, factor*float64(rank&1&^(rank>>1))) }, nil)
			told := fmt.Sprint(out.late)
			if n := len(out.late); n != 2 || out.late[0].Step >= 20+2*profile.ReportEvery || out.late[0].Detail["rank"] != 1.0 || out.late[1].Detail["over"] != true {
				t.Errorf("told %s, want rank 1 within %d steps, and when that is over", told, 2*profile.ReportEvery)
			}
			if got := out.late[0].Detail["score"].(float64); math.Abs(got*factor-1) > 0.01 {
				t.Errorf("score %v, want that of a rank %v times slower", got, factor)
			}
			if got, want := float64(out.metrics[69].Makespan), float64(best.last().Makespan); got > 1.15*want {
				t.Errorf("steps of %v s while the rank is slow, want at most 1.15 times %v", got, want)
			}
			if got, want := float64(out.last().Makespan), float64(out.metrics[19].Makespan); got > 1.15*want {
				t.Errorf("steps of %v s once it is over, want about the %v of before", got, want)
			}
			for step := range len(out.metrics) - 20 {
				if n := out.between(step, step+20); n > 2 {
					t.Errorf("%d migrations in the 20 steps from %d on: %v", n, step, out.after)
				}
			}
		})
	}
}
