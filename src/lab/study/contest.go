package study

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/sim"
)

// Contestant is how a way to place pieces of layers went in a case of a contest.
type Contestant struct {
	Name    string
	Over    float64 // seconds of a step over those of a step in which all replicas have even work; mean over the steps that count
	Worst   float64 // the same of the slowest step
	Dropped float64 // share of the work that it leaves undone
	Copied  int64   // bytes that the busiest rank sends or receives in a step for copies, mean
	Moves   int     // steps after which pieces moved
}

// The runs of a contest.
const (
	contestStages, contestBlocks, contestMicrobatches, contestSteps = 8, 32, 16, 48
	// contestWarm is the first steps, which do not count: nothing is known before the first.
	contestWarm = 8
)

// Contest simulates a case with each of the rivals of a kind's contest, on the same work: 32 blocks on
// 8 stages with 1F1B and 16 microbatches. First of all are even pieces on stages between which
// layers move.
func Contest(kind string, of dynamic.Contest, x dynamic.ContestCase, seed uint64, n sim.Network) ([]Contestant, error) {
	layers := of.Rivals[0]
	layers.Name = "layers moved"
	var series cost.Series
	var list []Contestant
	for i, r := range append([]dynamic.NamedPlacing{layers}, of.Rivals...) {
		moves := "uniform"
		if i == 0 || i == len(of.Rivals) {
			moves = "partition"
		}
		c, err := config.Load("", append([]string{
			fmt.Sprint("parallel.stages=", contestStages), fmt.Sprint("parallel.replicas=", x.Replicas), fmt.Sprint("parallel.microbatches=", contestMicrobatches),
			fmt.Sprint("model.blocks=", contestBlocks), fmt.Sprint("run.seed=", seed),
			"schedule.kind=1f1b", "balance.every=1", "balance.kind=" + moves, "dynamic.kind=none",
		}, x.Set...))
		if err == nil && series == nil {
			series, err = contested(kind, x, c)
		}
		var one Contestant
		if err == nil {
			one, err = contend(r.New(c), series, Options{Config: c, Network: n})
		}
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", x.Name, r.Name, err)
		}
		one.Name = r.Name
		list = append(list, one)
	}
	return list, nil
}

// contested returns the costs of a case.
func contested(kind string, x dynamic.ContestCase, c config.Config) (cost.Series, error) {
	series, err := Generate(kind, equalBlocks(c), &Options{Config: c}, dynamic.MadeUp{Steps: contestSteps}, 1)
	for i := range series {
		for l, share := range series[i].Routed.Share {
			if share > 0 {
				series[i].Routed.Share[l] = x.Share
			}
		}
	}
	return series, err
}

// contend simulates a series with one rival.
func contend(p dynamic.Placing, series cost.Series, o Options) (out Contestant, err error) {
	even := series[0]
	even.Scale, even.Routed, even.Steps = nil, nil, 1
	o.Static = true
	best, err := Simulate(cost.Series{even}, o)
	if err != nil {
		return out, err
	}
	o.Static, o.Placing = false, func(config.Config) dynamic.Placing { return p }
	run, err := Simulate(series, o)
	if err != nil {
		return out, err
	}
	steps := 0
	for _, s := range run.Segments {
		if s.Step < contestWarm {
			continue
		}
		over := float64(s.StepSeconds) / best.Seconds
		out.Over, out.Worst, steps = out.Over+over*float64(s.Steps), max(out.Worst, over), steps+s.Steps
		out.Copied += s.Copied * int64(s.Steps)
		out.Moves += s.Placed
	}
	out.Over, out.Copied = out.Over/float64(steps), out.Copied/int64(steps)
	if d, ok := p.(interface{ Dropped() float64 }); ok {
		out.Dropped = d.Dropped()
	}
	return out, nil
}

// equalBlocks returns a chain of blocks of a millisecond a pass between ends that take no time.
func equalBlocks(c config.Config) cost.Table {
	t := cost.Table{Clock: "sim", Layers: make([]cost.Layer, c.Layers())}
	for l := range t.Layers {
		at := &t.Layers[l]
		switch {
		case l == 0:
			at.Name = "embedding"
		case l > c.Model.Blocks:
			at.Name = "head"
		default:
			at.Name = fmt.Sprint("block.", l-1)
			*at = at.WithSeconds(cost.Stage{Forward: 1e-3, Input: 1e-3, Weight: 1e-3})
		}
	}
	return t
}
