package report

import (
	"dynmo/src/record"
	"dynmo/src/trace"
)

// part is where a share of the stages' time went.
type part struct {
	Name, Key, Meaning string
	Seconds            []float64 // of a step, by column
}

// idleTable is the time of a step by cause, mean over the stages, in columns of
// stretches of steps.
type idleTable struct {
	Columns []string
	Parts   []part
	Sum     []float64 // of the parts, by column
	Total   []float64 // what the step and the balancing behind it took, by column
}

// idleTable returns what the mean step of each stretch was spent on, nil if
// idle by cause was not recorded.
func (r Run) idleTable(columns []string, stretches []stretch) *idleTable {
	t := idleTable{Columns: columns, Parts: []part{
		{Name: "busy", Key: "busy", Meaning: "forwards and backwards"},
		{Name: "inherent", Key: "inherent", Meaning: "idle that this schedule has with equally loaded stages"},
		{Name: "imbalance", Key: "imbalance", Meaning: "idle that unequal loads add"},
		{Name: "memory", Key: "memory", Meaning: "idle that the cap on microbatches in flight adds"},
		{Name: "communication", Key: "communication", Meaning: "idle that messages add"},
		{Name: "update", Key: "update", Meaning: "from the last backward to the end of the step: gradient sum, norm, optimizer"},
		{Name: "balancing", Key: "balancing", Meaning: "measuring, deciding and moving layers after the step"},
	}}
	of := []func(record.Metrics) float64{
		func(m record.Metrics) float64 { return m.Idle.Busy },
		func(m record.Metrics) float64 { return m.Idle.Inherent },
		func(m record.Metrics) float64 { return m.Idle.Imbalance },
		func(m record.Metrics) float64 { return m.Idle.Memory },
		func(m record.Metrics) float64 { return m.Idle.Communication },
		func(m record.Metrics) float64 { return float64(m.StepSeconds - m.Makespan) },
		func(m record.Metrics) float64 { return m.Idle.Balancing },
	}
	recorded := false
	for _, m := range r.Metrics {
		recorded = recorded || m.Idle != (trace.Idle{})
	}
	if !recorded {
		return nil
	}
	for _, s := range stretches {
		sum := 0.0
		for i := range t.Parts {
			seconds := r.mean(s, of[i])
			t.Parts[i].Seconds = append(t.Parts[i].Seconds, seconds)
			sum += seconds
		}
		t.Sum = append(t.Sum, sum)
		t.Total = append(t.Total, r.mean(s, func(m record.Metrics) float64 { return float64(m.StepSeconds + m.BalanceSeconds) }))
	}
	return &t
}
