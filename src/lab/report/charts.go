package report

import (
	"fmt"
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
	unit, scale := "ms", 1e3
	if middle(r.Metrics, stepSeconds) >= 10 {
		unit, scale = "s", 1
	}
	of := func(m record.Metrics) record.Float { return record.Float(scale) * m.StepSeconds }
	c := r.chart("step time", unit, "from the first forward to the last update, "+r.Metrics[0].Clock+" clock", of)
	c.FromZero = true
	c.Top = 3 * middle(r.Metrics, of)
	if len(list) == 0 {
		c.crop(r.Metrics, of)
		return c
	}
	c.Curves[0].Name = "this run"
	held := func(name, style string, of func(baseline) float64) {
		n := &curve{Name: name, Style: style, Held: true}
		var x, y []float64
		for _, b := range list {
			x, y = append(x, float64(r.Metrics[b.steps.lo].Step)), append(y, scale*of(b))
		}
		n.thin(x, y)
		c.Curves = append(c.Curves, n)
		c.Top = max(c.Top, 1.1*slices.Max(y))
	}
	held(first, "static", func(b baseline) float64 { return b.Static })
	held("best cuts", "best", func(b baseline) float64 { return b.Best })
	c.crop(r.Metrics, of)
	return c
}

// crop sets Top and describes the steps above it. A few steps may be many times longer than the
// others; often the first one is. Without such steps there is no Top.
func (c *chart) crop(steps []record.Metrics, of func(record.Metrics) record.Float) {
	n, most := 0, 0
	for i, m := range steps {
		if float64(of(m)) > c.Top {
			n++
		}
		if of(m) > of(steps[most]) {
			most = i
		}
	}
	switch longest := float64(of(steps[most])); {
	case !(longest > 1.5*c.Top):
		c.Top = 0
	case n == 1:
		c.Above = fmt.Sprintf("Above the picture: step %d, %s %s.", steps[most].Step, dynamic.Significant(longest), c.Unit)
	default:
		c.Above = fmt.Sprintf("Above the picture: %d steps, the longest %s %s (step %d).", n, dynamic.Significant(longest), c.Unit, steps[most].Step)
	}
}

// charts returns the charts of the other numbers.
func (r Run) charts() []*chart {
	list := []*chart{
		r.chart("throughput", "tokens/s", r.Metrics[0].Clock+" clock", func(m record.Metrics) record.Float { return m.TokensPerSecond }),
		r.chart("bubble ratio", "%", "idle share of the stages' time in the pipeline", func(m record.Metrics) record.Float { return 100 * m.BubbleRatio }),
		r.chart("imbalance", "%", "(most − least busy stage) / mean", func(m record.Metrics) record.Float { return 100 * m.Imbalance }),
	}
	for _, c := range list {
		c.FromZero = true
	}
	if r.Config.Dynamic.Replay == "" && !r.simulated() {
		list = slices.Insert(list, 0, r.loss())
	}
	if steps, share := r.sparsity(); slices.Max(share) > 0 {
		for i := range share {
			share[i] *= 100
		}
		n := &curve{Style: "line", Held: true}
		n.thin(steps, share)
		list = append(list, &chart{Title: "sparsity", Unit: "%", About: "share of prunable weights that are pruned", FromZero: true, Curves: []*curve{n}})
	}
	return list
}

// loss returns the chart of the training loss, with the validation loss if there is one.
func (r Run) loss() *chart {
	c := r.chart("loss", "nats per token", "", func(m record.Metrics) record.Float { return m.Loss })
	n := &curve{Name: "validation", Style: "validation"}
	var x, y []float64
	for _, m := range r.validations() {
		x, y = append(x, float64(m.Step)), append(y, float64(m.ValidationLoss))
	}
	if len(x) > 1 { // a line needs two points
		n.thin(x, y)
		c.Curves[0].Name = "training"
		c.Curves = append(c.Curves, n)
	}
	return c
}

// validations returns the steps after which the validation loss was measured.
func (r Run) validations() []record.Metrics {
	var list []record.Metrics
	for _, m := range r.Metrics {
		if m.Validated() {
			list = append(list, m)
		}
	}
	return list
}

// chart returns the chart of a number that every step has.
func (r Run) chart(title, unit, about string, of func(record.Metrics) record.Float) *chart {
	x, y := make([]float64, len(r.Metrics)), make([]float64, len(r.Metrics))
	for i, m := range r.Metrics {
		x[i], y[i] = float64(m.Step), float64(of(m))
	}
	n := &curve{Style: "line"}
	n.thin(x, y)
	return &chart{Title: title, Unit: unit, About: about, Curves: []*curve{n}}
}

// sparsity returns the pruned share of the weights by step. It comes from the metrics, and in older
// runs from the changes of the model. If nothing was pruned it is 0 at the first step.
func (r Run) sparsity() (steps, share []float64) {
	for _, m := range r.Metrics {
		steps, share = append(steps, float64(m.Step)), append(share, float64(m.Sparsity))
	}
	if slices.Max(share) > 0 {
		return steps, share
	}
	steps, share = steps[:1], share[:1]
	for _, e := range r.Events {
		if s, ok := e.Detail["sparsity"].(float64); ok && e.Kind == record.Dynamic && float64(e.Step) >= steps[len(steps)-1] {
			steps, share = append(steps, float64(e.Step)), append(share, s)
		}
	}
	return steps, share
}
