package experts

import (
	"cmp"
	"fmt"
	"slices"

	"dynmo/src/config"
	"dynmo/src/sim"
	"dynmo/src/study"
	"dynmo/src/trace"
)

// Row is a run of a case: medians over its last steps, but for overhead and moves.
type Row struct {
	Way       Way
	Cuts      string  // of its balancer; "best static" is the faster of those that never move
	Step      float64 // seconds
	Imbalance float64 // (largest - smallest) / mean of the stages' busy seconds
	Bubble    float64 // ratio
	Overhead  float64 // share of all time that measuring, deciding and moving took
	Moves     int
	Ceiling   float64 // of any cuts over these (see study.Run.Ceiling)
}

// Table is what a case shows.
type Table struct {
	*Case
	Rows []Row
}

// balancers are those that move layers.
var balancers = []config.Balance{{Kind: "partition", By: "time"}, {Kind: "diffusion", By: "time"}}

// bestStatic names the faster of the cuts that never move: by blocks, by parameters.
const bestStatic = "best static"

// Table simulates the runs of the case: each way of sharing work in a layer on the best
// static cuts, and layers that move in every iteration with experts in their order, and
// with those placed.
func (k *Case) Table() (Table, error) {
	t := Table{Case: k}
	for _, w := range Ways {
		var static []Row
		for _, kind := range []string{"uniform", "param"} {
			row, err := k.run(w, config.Balance{Kind: kind, By: "time"})
			if err != nil {
				return t, err
			}
			static = append(static, row)
		}
		best := slices.MinFunc(static, func(a, b Row) int { return cmp.Compare(a.Step, b.Step) })
		best.Cuts = bestStatic + ", " + best.Cuts
		t.Rows = append(t.Rows, best)
		for _, b := range balancers {
			if w == Fixed {
				break
			}
			row, err := k.run(w, b)
			if err != nil {
				return t, err
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t, nil
}

// run simulates a run on some cuts.
func (k *Case) run(w Way, b config.Balance) (Row, error) {
	c := k.config
	c.Balance.Kind, c.Balance.By = b.Kind, b.By
	done, err := study.Simulate(k.series(w), study.Options{
		Config: c, Network: sim.Uniform(c.Comm.LatencySeconds, c.Comm.BandwidthBytes), Static: !b.Moves(),
	})
	if err != nil {
		return Row{}, fmt.Errorf("%s, %v, %v: %w", k.Name, w, b, err)
	}
	row := Row{Way: w, Cuts: b.String(), Overhead: (done.Moving + done.Measuring + done.Deciding) / done.Seconds, Ceiling: done.Ceiling()}
	row.Moves, _ = done.Moves()
	var step, imbalance, bubble []float64
	for _, s := range done.Segments {
		if s.Step >= steps-settled {
			step, bubble = append(step, s.Seconds), append(bubble, s.Plan.Step.Summary.BubbleRatio())
			imbalance = append(imbalance, trace.Imbalance(s.Plan.Step.Summary.Busy))
		}
	}
	row.Step, row.Imbalance, row.Bubble = trace.Median(step), trace.Median(imbalance), trace.Median(bubble)
	return row, nil
}
