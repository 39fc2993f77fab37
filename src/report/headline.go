package report

import (
	"fmt"

	"dynmo/src/plan"
	"dynmo/src/record"
)

// Headline says in one sentence what moving layers was worth, to a run that was packed
// onto fewer ranks or not.
func Headline(w plan.Worth, packed bool) string {
	never := "never moving"
	if packed {
		never = "never moving or packing"
	}
	ceiling := fmt.Sprintf("ceiling %.2f", w.Ceiling)
	within := ceiling
	if w.Draws > 0 {
		within = spread(w) + "; " + ceiling
	}
	switch {
	case !w.Moved && w.Ceiling < 1+plan.LeastGain:
		return "layers never moved; no other cuts would be faster"
	case !w.Moved:
		return fmt.Sprintf("layers never moved; the best cuts would be %.2fx faster", w.Ceiling)
	case w.Noise():
		return fmt.Sprintf("within noise of %s: %.2fx (%s)", never, w.Speedup, within)
	case w.Speedup < 1:
		return fmt.Sprintf("%.2fx, slower than %s (%s)", w.Speedup, never, within)
	}
	return fmt.Sprintf("%.2fx faster than %s (%s)", w.Speedup, never, within)
}

// spread writes the percentiles of the speedup, nothing where they are not known.
func spread(w plan.Worth) string {
	if w.Draws == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f to %.2f", w.Low, w.High)
}

// worth returns what moving layers was worth to the run, as its summary has it or, of a
// run that has not ended, from its costs; nil where there is one stage, or there are no
// costs of it.
func (r Run) worth() (*plan.Worth, error) {
	if r.End != nil && r.End.Worth != nil {
		return r.End.Worth, nil
	}
	ran, err := r.ran()
	if err != nil || ran == nil {
		return nil, err
	}
	w, err := ran.Planner.Worth(ran.Series)
	if err != nil {
		return nil, unlessNotRun(err)
	}
	return &w, nil
}

// ran returns what the run recorded of its costs, nil where there is one stage or no
// phase that was run to its end.
func (r Run) ran() (*plan.Ran, error) {
	if r.Config.Parallel.Stages == 1 {
		return nil, nil
	}
	series, err := r.costs()
	if err != nil || series == nil {
		return nil, err
	}
	p, err := plan.Configured(r.Config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.file(record.SettingsFile), err)
	}
	return &plan.Ran{Planner: p, Series: series}, nil
}
