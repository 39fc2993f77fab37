package launch

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/plan/policy"
	"dynmo/src/record"
	"dynmo/src/tensor"
	"dynmo/src/train"
)

// tight is a device whose memory runs out a number of times, for allocations within one function.
type tight struct {
	*cpu.Device
	within string
	times  int
}

func (d *tight) Alloc(bytes int64) (tensor.Mem, error) {
	if d.times > 0 && strings.Contains(string(debug.Stack()), d.within) {
		d.times--
		return tensor.Mem{}, errors.New("out of memory")
	}
	return d.Device.Alloc(bytes)
}

// Memory reports a GPU's memory. A number of times it reports negative free memory, so that no
// stage fits.
func (d *tight) Memory() (free, total int64, err error) {
	if d.within == "Memory" && d.times > 0 {
		d.times--
		return -d.Used() - d.Kept(), 0, nil
	}
	return 1 << 40, 1 << 40, nil
}

// refusals records the events that report moves for which there was no memory.
type refusals struct {
	run
	refused []string
	warned  int
}

func (r *refusals) Event(e record.Event) error {
	if why := e.Refused(); why != "" {
		r.refused = append(r.refused, fmt.Sprintf("step %d: %s", e.Step, why))
		return nil
	}
	return r.run.Event(e)
}

func (r *refusals) Say(line string) {
	if strings.HasPrefix(line, "warning: ") {
		r.warned++
	}
}

// tightRun trains with a balancer. The memory of rank 1 runs out within a function, the given
// number of times, once rank 1 has its first stage.
func tightRun(t *testing.T, c config.Config, within string, times int, balancer func() policy.Balancer) *refusals {
	t.Helper()
	out := &refusals{}
	made(t, c, out, func(_ int, clock *device.Clock, s *train.Setup) {
		s.Device, s.Backend = &tight{Device: cpu.New(clock), within: within}, ref.New(tensor.F32)
	}, func(rank int, r *train.Rank) {
		if rank == 1 {
			r.Device.(*tight).times = times
		}
		r.Balancer = balancer()
	})
	return out
}

// TestNoMemoryForAMove: a rank has no memory for a layer, or for the buffers of its next stage. All
// ranks then give up the move, and one event reports it. Training continues, later moves included,
// with the losses, norms and weights of an undisturbed run. The same holds where ranks would leave,
// and where a GPU has less memory than its next stage needs.
func TestNoMemoryForAMove(t *testing.T) {
	c := small(t)
	c.Dynamic.Kind, c.Train.Steps = "none", 8
	alone := func(replicas int) *run { // without disturbance, on one stage
		c := c
		c.Parallel.Replicas = replicas
		return &tightRun(t, c, "", 0, func() policy.Balancer { return &script{next: scatter(4)} }).run
	}
	for _, d := range []struct {
		name, within     string
		stages, replicas int
		shrinks          map[int]int
		why              string
	}{
		{"layer", "model.Restore", 3, 1, nil, "out of memory"},
		{"buffers", "pipeline.New", 3, 1, nil, "out of memory"},
		{"layer of one replica", "model.Restore", 2, 2, nil, "out of memory"},
		{"leaving", "model.Restore", 4, 1, map[int]int{0: 2}, "out of memory"},
		{"leaving a full GPU", "Memory", 4, 1, map[int]int{0: 2}, "GiB of the GPU, which has"},
	} {
		t.Run(d.name, func(t *testing.T) {
			expect.NewFault(t, "F20", "")
			c := c
			c.Parallel.Stages, c.Parallel.Replicas = d.stages, d.replicas
			out := tightRun(t, c, d.within, 1, func() policy.Balancer {
				return &shrinking{script: &script{next: scatter(4)}, config: c, stages: d.shrinks}
			})
			if at := out.difference(alone(d.replicas)); at != "" {
				t.Errorf("differs from one stage at %s", at)
			}
			if len(out.refused) != 1 || !strings.Contains(out.refused[0], ": rank 1 (host ") || !strings.Contains(out.refused[0], d.why) || out.warned != 1 {
				t.Errorf("%q and %d warnings, want one that names rank 1", out.refused, out.warned)
			}
			if out.moves == 0 {
				t.Error("no layer moved later")
			}
		})
	}
}

// TestRefusedMovesRest: after a rank had no memory for a move, the balancer moves no layers for a
// hundred steps. Then it tries again.
func TestRefusedMovesRest(t *testing.T) {
	expect.NewFault(t, "F20", "kind=rest")
	c := small(t, "dynamic.kind=none")
	c.Train.Steps = 115
	out := blocksOf22On(t, c, func(rank int) float64 { return 1 + float64(rank&1&^(rank>>1)) }, nil, func(rank int, d *cpu.Device) device.Device {
		return &tight{d, "model.Restore", max(0, 1-rank)}
	})
	refused := 0
	for _, line := range out.said {
		if strings.HasPrefix(line, "warning: ") {
			refused++
		}
	}
	if refused != 1 || len(out.after) == 0 || out.after[0] < 100 {
		t.Errorf("%d moves were refused and layers moved after steps %v, want 1, then none for 100 steps: %q", refused, out.after, out.said)
	}
}
