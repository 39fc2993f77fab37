package dynamism

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/record"
)

// TestCases: the settings of every case are allowed on every balancer, at each length of a
// run, and none of them is without effect; every kind has two strengths.
func TestCases(t *testing.T) {
	strengths := make(map[string]int)
	for _, c := range Cases() {
		strengths[c.Kind]++
		for _, steps := range []int{LeastSteps, UsualSteps} {
			for _, b := range balancers {
				s, err := c.settings(steps, b, true)
				if err != nil {
					t.Fatalf("%s: %v", c.Name(), err)
				}
				for _, line := range s.Ignored() {
					if !strings.HasPrefix(line, "balance.") { // of those that never move layers
						t.Errorf("%s: %s", c.Name(), line)
					}
				}
			}
			dense, err := c.settings(steps, balancers[0], false)
			expect.OK(t, err)
			if dense.Dynamic.Kind != "none" {
				t.Errorf("%s: the dense model is of kind %s", c.Name(), dense.Dynamic.Kind)
			}
		}
	}
	for kind, n := range strengths {
		if n != 2 {
			t.Errorf("%s: %d strengths, want 2", kind, n)
		}
	}
}

// pretend returns a Train whose steps take so many seconds on each balancer, and are told
// to turn.
func pretend(seconds map[string]float64, turn func(name string, step int)) Train {
	return func(c config.Config, o record.Observer) (string, error) {
		name, hash := c.Balance.String(), "same"
		if c.Dynamic.Kind == "none" {
			name, hash = dense, "other"
		}
		x := record.Float(seconds[name])
		if x < 0 {
			return "", errors.New("broken")
		}
		for step := range c.Train.Steps {
			turn(name, step)
			m := record.Metrics{
				Step: step, StepSeconds: x, Makespan: x, BalanceSeconds: x / 1000, Bottleneck: x / 8, Optimum: x / 16,
				Imbalance: 0.5, BubbleRatio: 0.25, Headroom: 2, BatchSize: microbatches,
			}
			m.Idle.Busy = float64(x) / 2
			if step == change {
				m.BalanceSeconds = x
				if err := o.Event(record.Event{Kind: record.Migrate}); err != nil {
					return "", err
				}
			}
			if err := o.Step(m); err != nil {
				return "", err
			}
		}
		return hash, nil
	}
}

var made = map[string]float64{
	dense: 4, "uniform": 3, "param": 2, "partition by time": 1.25, "partition by param": 2.5, "diffusion by time": 1.5, "diffusion by param": 3,
}

// TestMeasure: runs take their steps in turn, and the figures are those of the best static
// cuts and the best balancer.
func TestMeasure(t *testing.T) {
	var lock sync.Mutex
	var order []string
	m, err := Measure(Cases()[0], LeastSteps, pretend(made, func(name string, step int) {
		lock.Lock()
		defer lock.Unlock()
		order = append(order, fmt.Sprint(name, step))
	}))
	expect.OK(t, err)
	for i, r := range m.Runs {
		for step := range LeastSteps {
			if got, want := order[step*len(m.Runs)+i], fmt.Sprint(r.Name, step); got != want {
				t.Fatalf("turn %d of step %d: %s, want %s", i, step, got, want)
			}
		}
	}
	f := m.Figures()
	best, static := f.Rows[f.Best], f.Rows[f.Static]
	if best.Name != "partition by time" || static.Name != "param" || best.Total != 3.2 || best.Speedup != 1.6 || best.Moves != 1 {
		t.Errorf("best %+v, static %+v", best, static)
	}
	if f.Ceiling != 2 || f.Reached() != 0.8 {
		t.Errorf("ceiling %v, reached %v", f.Ceiling, f.Reached())
	}
	// All stages: 8 · busy / 32. Behind the first, 31 microbatches at 1/8 or at 1/16.
	if want := (0.125 + 31.0/8) / (0.125 + 31.0/16); math.Abs(f.Possible-want) > 1e-12 {
		t.Errorf("best cuts %v, want %v", f.Possible, want)
	}
	// A move of a step's length in 12 steps, but in the paper in 1000; a thousandth in each.
	if got, want := best.Overhead, (1+0.011)/(12+1+0.011); math.Abs(got-want) > 1e-12 {
		t.Errorf("overhead %v, want %v", got, want)
	}
	if got := f.Overhead(); !(got > 0.0019 && got < 0.0021) {
		t.Errorf("overhead at the paper's frequency %v, want 0.002", got)
	}
	f.Every = true
	if f.Overhead() != best.Overhead || f.Most() != everyOverhead {
		t.Errorf("overhead of each iteration %v of %v", f.Overhead(), f.Most())
	}
}

// TestMeasureFails: a run that fails ends no other, and is told; so is one that ends with
// other weights.
func TestMeasureFails(t *testing.T) {
	broken := map[string]float64{"diffusion by time": -1}
	quiet := func(string, int) {}
	if _, err := Measure(Cases()[0], LeastSteps, pretend(broken, quiet)); err == nil || err.Error() != "prune, diffusion by time: broken" {
		t.Error(err)
	}
	train := pretend(made, quiet)
	_, err := Measure(Cases()[0], LeastSteps, func(c config.Config, o record.Observer) (string, error) {
		hash, err := train(c, o)
		return hash + c.Balance.By, err
	})
	if err == nil || !strings.Contains(err.Error(), "final weights sameparam on partition by param, sametime on uniform: want the same") {
		t.Error(err)
	}
}
