package report

import (
	"fmt"
	"slices"
	"time"

	"dynmo/src/dynamic"
	"dynmo/src/files"
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
	measured := curve{Name: "measured", Style: "line", Y: gaps(len(r.Metrics))}
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

// packingTable returns packings and releases for the page, with a header. It returns nil if nothing
// was packed.
func (r Run) packingTable(p *verdict.Packing) [][]string {
	if p == nil {
		return nil
	}
	table := [][]string{{
		"step", "what happened", "ranks", "nodes", "predicted, %", "measured, %",
		"deciding, ms", "moving, ms", "resizing, ms", "checkpoint, ms", "goodbye, ms", "scontrol, ms",
	}}
	for _, e := range r.Events {
		var packed record.Packed
		var released record.Released
		switch {
		case e.Kind == record.Repack && e.Read(&packed) == nil:
			table = append(table, []string{
				fmt.Sprint(e.Step), "packed, " + packed.Kind, change(packed.RanksBefore, packed.Ranks), change(packed.NodesBefore, packed.Nodes),
				perCent(packed.Throughput), perCent(p.Measured(e.Step + 1)),
				milliseconds(packed.Deciding), milliseconds(packed.Moving), milliseconds(packed.Resizing), "", "", "",
			})
		case e.Kind == record.Release && e.Read(&released) == nil:
			what := "released, " + released.Mode
			if released.Refused != "" {
				what = "refused, " + released.Mode
			}
			table = append(table, []string{
				fmt.Sprint(r.during(e, released)), what, fmt.Sprintf("%d ended", len(released.Ranks)), change(len(released.NodesBefore), len(released.Nodes)), "", "", "", "", "",
				milliseconds(released.Checkpoint), milliseconds(released.Goodbye), milliseconds(released.Scontrol),
			})
		}
	}
	for _, row := range table {
		for column := range row {
			row[column] = files.Visible(row[column])
		}
	}
	return table
}

// change formats a number before and after a change.
func change(before, after int) string { return fmt.Sprintf("%d → %d", before, after) }

// perCent formats a share, "" if it is not known.
func perCent(share record.Float) string {
	if !(share > 0) {
		return ""
	}
	return dynamic.Significant(100 * float64(share))
}

// packingFacts returns the results of packing, none if nothing was packed.
func packingFacts(p *verdict.Packing) []fact {
	if p == nil {
		return nil
	}
	facts := []fact{{"ranks that train", change(p.RanksFirst, p.RanksLast), fmt.Sprintf("on average %s, over the seconds of steps", dynamic.Significant(float64(p.MeanRanks)))}}
	if p.Throughput > 0 {
		note := "of the dense model's: steps at the end beside those before the model first changed"
		if p.Predicted > 0 {
			note += fmt.Sprintf("; %.2f× was predicted", p.Predicted)
		}
		facts = append(facts, fact{"throughput", fmt.Sprintf("%.2f×", p.Throughput), note})
	}
	if p.NodesFirst > 1 {
		facts = append(facts, fact{"nodes given back", fmt.Sprintf("%d of %d", p.NodesGivenBack, p.NodesFirst),
			fmt.Sprintf("%s node-hours; idle, still allocated: %d at the end, %s node-hours",
				dynamic.Significant(float64(p.HoursGivenBack)), p.NodesIdle, dynamic.Significant(float64(p.HoursIdle)))})
	}
	return facts
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
