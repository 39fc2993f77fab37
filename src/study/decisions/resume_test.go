package decisions

import (
	"bytes"
	"fmt"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
)

// keeper is what profilers and balancers are to checkpoints.
type keeper interface {
	Save() ([]byte, error)
	Restore([]byte, layout.Layout) error
}

// reasons is a balancer that tells what it answered.
type reasons struct {
	policy.Balancer
	list []string
}

func (r *reasons) Decide(m profile.Measurement, l layout.Layout) (layout.Layout, policy.Reason, error) {
	next, why, err := r.Balancer.Decide(m, l)
	diffusion := why.Diffusion
	why.Diffusion = nil // an address
	r.list = append(r.list, fmt.Sprintf("%v %v %+v %+v %v", next.Cuts, next.Schedule.Kind, why, diffusion, m.Estimate))
	return next, why, err
}

// resumed returns a competitor that goes on from what one has saved.
func (w *world) resumed(t *testing.T, from *competitor, balancer, every string) *competitor {
	t.Helper()
	c, err := w.newCompetitor(balancer, every, present)
	expect.OK(t, err)
	c.layout = from.layout
	for _, k := range [][2]keeper{
		{from.profiler, c.profiler},
		{from.balancer.(*reasons).Balancer.(keeper), c.balancer.(keeper)},
	} {
		text, err := k[0].Save()
		expect.OK(t, err)
		expect.OK(t, k[1].Restore(text, c.layout))
		again, err := k[1].Save()
		expect.OK(t, err)
		if !bytes.Equal(text, again) {
			t.Errorf("saved\n%s\nand saved again\n%s", text, again)
		}
	}
	c.balancer = &reasons{Balancer: c.balancer}
	return c
}

// TestResume: a run that is saved and goes on from there estimates and decides the same to
// the last bit as one that never ended, wherever it ended.
func TestResume(t *testing.T) {
	for _, c := range []struct {
		balancer, every string
		scenario        Scenario
		noise           Noise
	}{
		{"partition", "auto", Changes, Noises[0]}, {"partition", "auto", Changes, Noises[2]}, {"diffusion", "7", Changes, Noises[1]},
		{"partition", "5", SlowRank, Noises[1]}, {"partition", "auto", SlowRank, Noises[2]},
	} {
		size := Default().Size
		size.Steps = 150
		w := drawn(t, Case{Family: "pruned", Noise: c.noise, Scenario: c.scenario, Seed: 4, Size: size})
		whole, err := w.newCompetitor(c.balancer, c.every, present)
		expect.OK(t, err)
		whole.balancer = &reasons{Balancer: whole.balancer}
		ends := map[int]bool{1: true, 2: true, 3: true, 9: true, 51: true, 75: true, 102: true, 113: true, 140: true}
		var parts *competitor
		moves := 0
		for step := range w.Steps {
			if ends[step] {
				from := whole
				if parts != nil {
					from = parts
				}
				parts = w.resumed(t, from, c.balancer, c.every)
			}
			s := w.measure(step)
			was := whole.layout
			expect.OK(t, whole.step(s))
			if !whole.layout.Equal(was) {
				moves++
			}
			if parts == nil {
				continue
			}
			expect.OK(t, parts.step(s))
			if got, want := last(parts), last(whole); got != want {
				t.Fatalf("%+v, step %d:\n%s\nwant\n%s", c, step, got, want)
			}
		}
		if moves < 2 {
			t.Errorf("%+v: layers moved %d times", c, moves)
		}
	}
}

// last returns the newest answer.
func last(c *competitor) string {
	list := c.balancer.(*reasons).list
	return list[len(list)-1]
}
