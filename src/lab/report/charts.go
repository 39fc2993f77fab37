package report

import (
	"fmt"
	"math"
	"slices"

	"dynmo/src/dynamic"
	"dynmo/src/record"
)

// figure returns the chart of the step time, with the step times that the first cuts and the best
// cuts would have had.
func (r Run) figure(list []baseline, packed bool) *chart {
	first := "first cuts, never moved"
	if packed {
		first += ", on all ranks"
	}
	unit, scale := "ms", record.Float(1e3)
	if r.middle(r.whole(), stepSeconds) >= 10 {
		unit, scale = "s", 1
	}
	of := func(m record.Metrics) record.Float { return scale * m.StepSeconds }
	c := r.chart("step time", unit, "from the first forward to the last update, "+r.Metrics[0].Clock+" clock", r.curve("this run", "line", of))
	c.Top = 3 * float64(r.middle(r.whole(), of))
	held := func(name, style string, of func(baseline) float64) {
		n := curve{Name: name, Style: style, Held: true, Y: gaps(len(r.Metrics))}
		for _, b := range list {
			for i := b.steps.lo; i < b.steps.hi; i++ {
				n.Y[i] = scale * record.Float(of(b))
			}
			c.Top = max(c.Top, 1.1*float64(scale)*of(b))
		}
		c.Curves = append(c.Curves, n)
	}
	if len(list) > 0 {
		held(first, "static", func(b baseline) float64 { return b.Static })
		held("best cuts", "best", func(b baseline) float64 { return b.Best })
	}
	c.crop()
	return c
}

// crop sets Top and describes the steps above it. A few steps may be many times longer than the others;
// often the first one is. Without such steps there is no Top.
func (c *chart) crop() {
	n, most, longest := 0, 0, 0.0
	for _, curve := range c.Curves {
		for i, y := range curve.Y {
			if float64(y) > c.Top {
				n++
			}
			if float64(y) > longest {
				most, longest = i, float64(y)
			}
		}
	}
	switch {
	case !(longest > 1.5*c.Top):
		c.Top = 0
	case n == 1:
		c.Above = fmt.Sprintf("Above the picture: step %d, %s %s.", c.Steps[most], dynamic.Significant(longest), c.Unit)
	default:
		c.Above = fmt.Sprintf("Above the picture: %d steps, the longest %s %s (step %d).", n, dynamic.Significant(longest), c.Unit, c.Steps[most])
	}
}

// percentage is a number of a step, in per cent, that both pages draw.
type percentage struct {
	title, about string
	of           func(record.Metrics) record.Float
}

var (
	bubbles    = percentage{"bubble ratio", "idle share of the stages' time in the pipeline", func(m record.Metrics) record.Float { return 100 * m.BubbleRatio }}
	imbalances = percentage{"imbalance", "(most − least busy stage) / mean", func(m record.Metrics) record.Float { return 100 * m.Imbalance }}
	sparsities = percentage{"sparsity", "share of prunable weights that are pruned", func(m record.Metrics) record.Float { return 100 * m.Sparsity }}
)

// charts returns the charts of the other numbers.
func (r Run) charts() (list []*chart) {
	add := func(title, unit, about string, of func(record.Metrics) record.Float) {
		list = append(list, r.chart(title, unit, about, r.curve(title, "line", of)))
	}
	if r.Config.Dynamic.Replay == "" && !r.simulated() {
		list = append(list, r.loss())
	}
	add("throughput", "tokens/s", r.Metrics[0].Clock+" clock", func(m record.Metrics) record.Float { return m.TokensPerSecond })
	add(bubbles.title, "%", bubbles.about, bubbles.of)
	add(imbalances.title, "%", imbalances.about, imbalances.of)
	if slices.ContainsFunc(r.Metrics, func(m record.Metrics) bool { return m.Sparsity > 0 }) {
		add(sparsities.title, "%", sparsities.about, sparsities.of)
		list[len(list)-1].Curves[0].Held = true
	}
	return list
}

// loss returns the chart of the training loss, with the validation loss if there is one.
func (r Run) loss() *chart {
	c := r.chart("loss", "nats per token", "", r.curve("training", "line", func(m record.Metrics) record.Float { return m.Loss }))
	c.FromZero = false
	if r.validated() != nil {
		n := r.curve("validation", "validation", func(m record.Metrics) record.Float {
			if m.Validated() {
				return m.ValidationLoss
			}
			return record.Float(math.NaN())
		})
		n.Sparse = true
		c.Curves = append(c.Curves, n)
	}
	return c
}

// validated returns the last step after which the validation loss was measured, nil if there is none.
func (r Run) validated() *record.Metrics {
	for i := len(r.Metrics) - 1; i >= 0; i-- {
		if r.Metrics[i].Validated() {
			return &r.Metrics[i]
		}
	}
	return nil
}
