package report

import (
	"slices"
	"time"

	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

// packingCharts returns charts of the results of packing, none if nothing was packed.
func (r Run) packingCharts(p *verdict.Packing) []*chart {
	if p == nil {
		return nil
	}
	list := []*chart{r.ranksChart()}
	if c := r.denseChart(*p); c != nil {
		list = append(list, c)
	}
	return list
}

// ranksChart returns a chart of the ranks and nodes that trained in each step, and of the nodes of
// the job.
func (r Run) ranksChart() *chart {
	ranks, nodes, job := curve{Name: "ranks", Style: "line", Held: true}, curve{Name: "nodes", Style: "best", Held: true}, curve{Name: "nodes of the job", Style: "static", Held: true}
	allocated, given := 0, map[int]int{} // by step
	record.Replay(r.Metrics, r.Events, func(m record.Metrics) {
		allocated = max(allocated-given[m.Step], m.Nodes)
		ranks.Y, nodes.Y, job.Y = append(ranks.Y, record.Float(m.Ranks)), append(nodes.Y, record.Float(m.Nodes)), append(job.Y, record.Float(allocated))
	}, func(e record.Event) {
		var d record.Released
		switch {
		case e.Kind == record.Resumed:
			allocated = 0
		case e.Kind == record.Release && e.Read(&d) == nil:
			given[r.during(e, d)] += d.GivenBack()
		}
	})
	return r.chart("ranks", "", "that train, and nodes with one of them, beside the nodes that the job has", ranks, nodes, job)
}

// denseChart returns a chart of the throughput as a share of the dense model's, with the
// predictions of packings. The dense throughput is measured if possible, else taken from the steps'
// own shares. It returns nil if the share is not known.
func (r Run) denseChart(p verdict.Packing) *chart {
	first := p.Segments[0]
	dense := first.Throughput * first.Seconds // seconds of a step of the dense model
	about := "against the steps before the model first changed"
	if dense == 0 {
		about = "against what was predicted before the model first changed"
	}
	measured := curve{Name: r.timesAre(), Style: "line", Y: gaps(len(r.Metrics))}
	predicted := curve{Name: "predicted by packing", Style: "best", Held: true, Y: gaps(len(r.Metrics))}
	for i, m := range r.Metrics {
		share := m.Throughput
		if dense > 0 {
			share = dense / m.StepSeconds * record.Float(m.BatchSize) / record.Float(r.Metrics[0].BatchSize)
		}
		if share > 0 {
			measured.Y[i] = 100 * share
		}
	}
	for _, s := range p.Segments {
		for i := r.index(s.Step); i < len(r.Metrics) && s.Predicted > 0; i++ {
			predicted.Y[i] = 100 * s.Predicted
		}
	}
	c := r.chart("throughput of the dense model", "%", about, measured, predicted)
	if !c.Drawn() {
		return nil
	}
	return c
}

// during returns the step during which a release ended. The event of the release names the step at
// which it began.
func (r Run) during(e record.Event, d record.Released) int {
	i, _ := slices.BinarySearchFunc(r.Metrics, d.Time, func(m record.Metrics, at time.Time) int { return m.Time.Compare(at) })
	if d.Time.IsZero() || i < r.index(e.Step) {
		return e.Step
	}
	return r.Metrics[min(i, len(r.Metrics)-1)].Step
}
