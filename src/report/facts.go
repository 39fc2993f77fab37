package report

import (
	"fmt"
	"math"

	"dynmo/src/record"
)

// fact is a number of the run, or a line of its provenance.
type fact struct{ Name, Value, Note string }

// facts returns the outcome of the run, what a reader looks for first before the
// rest.
func (r Run) facts(s summary, list []baseline) []fact {
	clock := s.Clock + " clock"
	first := r.first()
	var facts []fact
	if len(list) > 0 {
		facts = append(facts, r.gain(list))
	}
	step := fact{"step time", milliseconds(s.After) + " ms", "median of the second half, " + clock}
	if first.hi < len(r.Metrics) {
		step.Value = milliseconds(s.Before) + " → " + step.Value
		step.Note = r.steps(first) + ", before anything moved or changed → the end; medians, " + clock
	}
	facts = append(facts, step)
	if len(list) > 0 {
		facts = append(facts, r.left(list))
	}
	facts = append(facts, fact{"final loss", fmt.Sprintf("%.5g", s.Loss), fmt.Sprintf("nats per token; %v", s.Loss)})
	if gone := r.gone(); gone > 0 {
		facts = append(facts, fact{"sparsity", significant(100*gone) + " %", "of the prunable weights are gone at the end"})
	}
	bubble := middle(r.Metrics[first.lo:first.hi], func(m record.Metrics) record.Float { return m.BubbleRatio })
	return append(facts,
		fact{"bubble ratio", fmt.Sprintf("%s → %s %%", significant(100*bubble), significant(100*s.Bubble)), "idle share of the stages' time in the pipeline, first → last"},
		fact{"balancing", fmt.Sprintf("%.2f %%", 100*s.Overhead), fmt.Sprintf("of all time went to measuring, deciding and moving %s of layers", size(s.Moved))},
		fact{"steps", fmt.Sprintf("%d of %d", len(r.Metrics), r.Config.Train.Steps), r.skipped()})
}

// gain compares the run with its first cuts.
func (r Run) gain(list []baseline) fact {
	used := total(list, func(b baseline) float64 { return b.Used })
	static := total(list, func(b baseline) float64 { return b.Static })
	if !r.moved() {
		return fact{"gain by moving", "none", "no layer moved: the first cuts were used throughout"}
	}
	return fact{"gain by moving", fmt.Sprintf("%.2f×", static/used),
		fmt.Sprintf("the first cuts, never moved, would take %s ms a step, this run took %s; simulated on its own costs", milliseconds(static), milliseconds(used))}
}

// left says how far from the best cuts the run was.
func (r Run) left(list []baseline) fact {
	used := total(list, func(b baseline) float64 { return b.Used })
	best := total(list, func(b baseline) float64 { return b.Best })
	return fact{"left to gain", fmt.Sprintf("%.2f×", used/best), fmt.Sprintf("the best cuts for every phase's costs would take %s ms a step", milliseconds(best))}
}

// moved reports whether any layer moved.
func (r Run) moved() bool {
	for _, e := range r.Events {
		if e.Kind == record.Migrate {
			return true
		}
	}
	return false
}

// gone returns the share of weights that are gone at the end.
func (r Run) gone() float64 {
	gone := 0.0
	for _, e := range r.Events {
		if s, ok := e.Detail["sparsity"].(float64); ok && e.Kind == record.Dynamic {
			gone = s
		}
	}
	return gone
}

// skipped says how many updates were left out.
func (r Run) skipped() string {
	n := 0
	for _, m := range r.Metrics {
		if m.Skipped {
			n++
		}
	}
	return fmt.Sprintf("%d of them without an update", n)
}

// milliseconds writes seconds.
func milliseconds[F ~float64](seconds F) string { return significant(1e3 * float64(seconds)) }

// significant writes a number with three digits, or all those before the point.
func significant(x float64) string {
	switch abs := math.Abs(x); {
	case abs >= 1e6 || abs < 1e-3 && abs > 0:
		return fmt.Sprintf("%.3g", x)
	case abs >= 100:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// count writes a large number in thousands, millions or more.
func count(x float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if math.Abs(x) >= unit.size {
			return significant(x/unit.size) + unit.name
		}
	}
	return significant(x)
}

// size writes a number of bytes.
func size(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	return count(float64(n)) + "B"
}
