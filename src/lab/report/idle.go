package report

import (
	"slices"

	"dynmo/src/record"
	"dynmo/src/trace"
)

// part is a part of the time of stages: busy, or idle for one cause.
type part struct {
	Name, Meaning string
	of            func(record.Metrics) float64
	Seconds       []float64 // seconds of a step, by column
}

// idleTable is the time of a step by cause, as a mean over the stages. It has a column for each
// segment of the run.
type idleTable struct {
	Columns []string
	Parts   []part
	Sum     []float64 // sum of the parts, by column
	Total   []float64 // seconds of the step and of the balancing after it, by column
}

// idleTable returns the time by cause of the mean step of the whole run, and of the segments before
// and after the best move, which was behind step `move`. move is -1 if no layer moved. The table is nil
// if idle time by cause was not recorded.
func (r Run) idleTable() (*idleTable, int) {
	columns, segments, move := []string{"whole run"}, []segment{r.whole()}, -1
	if before, after, step, ok := r.bestMove(); ok {
		move = step
		columns, segments = append([]string{"before: " + r.steps(before), "after: " + r.steps(after)}, columns...), append([]segment{before, after}, segments...)
	}
	t := idleTable{Columns: columns, Parts: []part{
		{"busy", "forwards and backwards", func(m record.Metrics) float64 { return m.Idle.Busy }, nil},
		{"inherent", "idle that this schedule has with equally loaded stages", func(m record.Metrics) float64 { return m.Idle.Inherent }, nil},
		{"imbalance", "idle that unequal loads add", func(m record.Metrics) float64 { return m.Idle.Imbalance }, nil},
		{"memory", "idle that the cap on microbatches in flight adds", func(m record.Metrics) float64 { return m.Idle.Memory }, nil},
		{"communication", "idle that messages add", func(m record.Metrics) float64 { return m.Idle.Communication }, nil},
		{"update", "from the last backward to the end of the step: gradient sum, norm, optimizer", func(m record.Metrics) float64 { return float64(m.StepSeconds - m.Makespan) }, nil},
		{"balancing", "measuring, deciding and moving layers after the step", func(m record.Metrics) float64 { return m.Idle.Balancing }, nil},
	}}
	if !slices.ContainsFunc(r.Metrics, func(m record.Metrics) bool { return m.Idle != trace.Idle{} }) {
		return nil, move
	}
	for _, s := range segments {
		sum := 0.0
		for i := range t.Parts {
			seconds := r.mean(s, t.Parts[i].of)
			t.Parts[i].Seconds = append(t.Parts[i].Seconds, seconds)
			sum += seconds
		}
		t.Sum = append(t.Sum, sum)
		t.Total = append(t.Total, r.mean(s, func(m record.Metrics) float64 { return float64(m.StepSeconds + m.BalanceSeconds) }))
	}
	return &t, move
}
