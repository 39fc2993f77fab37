package report

import (
	"fmt"

	"dynmo/src/lab/verdict"
	"dynmo/src/plan/search"
	"dynmo/src/record"
)

// Headline returns one sentence about the gain of moving layers. packed says whether the run was
// packed onto fewer ranks. overhead is the share of the training time that balancing took.
func Headline(w verdict.Result, packed bool, overhead float64) string {
	static := "static placement"
	if packed {
		static = "static placement without packing"
	}
	ceiling := fmt.Sprintf("ceiling %.2f", w.Ceiling)
	within := ceiling
	if w.Draws > 0 {
		within = spread(w) + "; " + ceiling
	}
	switch {
	case w.Doubt != "":
		return "the speedup is not meaningful: " + w.Doubt
	case !w.Moved:
		text := "balancing gained nothing: the first cuts were already the best"
		if w.Ceiling >= 1+verdict.LeastGain {
			text = fmt.Sprintf("layers never moved; the best cuts would be %.2fx faster", w.Ceiling)
		}
		if w.Price > 0 {
			text += fmt.Sprintf("; measuring and deciding cost %s of the time", share(overhead, 1))
		}
		return text
	case w.IsNoise():
		return fmt.Sprintf("within noise of %s: %.2fx (%s)", static, w.Speedup, within)
	case w.Speedup < 1:
		return fmt.Sprintf("%.2fx, slower than %s (%s)", w.Speedup, static, within)
	}
	return fmt.Sprintf("%.2fx faster than %s (%s)", w.Speedup, static, within)
}

// Remarks returns lines for the headline of a run: the moves that did not pay, the reason why no layer moved,
// and what would gain.
func Remarks(s verdict.Summary) (lines []string) {
	if s.Moves != nil {
		if text := s.Moves.String(); text != "" {
			lines = append(lines, "moves: "+text)
		}
	}
	isBest := s.WouldGain != "" && s.Worth != nil && !s.Worth.Moved && s.Worth.Ceiling < 1+verdict.LeastGain // the headline says so
	if s.Stayed != "" && !isBest {
		lines = append(lines, "no layer moved, because "+s.Stayed)
	}
	if s.WouldGain != "" {
		lines = append(lines, s.WouldGain)
	}
	return lines
}

// headline returns the Headline of a run.
func (r Run) headline(w verdict.Result) string {
	return Headline(w, r.packing() != nil, float64(r.row().Overhead))
}

// remarks returns the Remarks of a run that was read. They come from its summary, or else from its
// records.
func (r Run) remarks() []string {
	if r.End != nil && (r.End.Moves != nil || r.End.Stayed != "") {
		return Remarks(*r.End)
	}
	var t verdict.Tally
	for _, m := range r.Metrics {
		t.Step(m)
	}
	for _, e := range r.Events {
		t.Event(e)
	}
	for _, p := range r.Costs {
		t.Costs(p)
	}
	return Remarks(t.Summary(verdict.Finished, r.Config, nil))
}

// spread formats the percentiles of the speedup, "" if they are not known.
func spread(w verdict.Result) string {
	if w.Draws == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f to %.2f", w.Low, w.High)
}

// worth returns the value of moving layers for the run. It comes from the summary; for a run that
// has not ended it is computed from the costs. It is nil if there is one stage or if there are no
// costs.
func (r Run) worth() (*verdict.Result, error) {
	if r.End != nil && r.End.Worth != nil {
		return r.End.Worth, nil
	}
	ran, err := r.ran()
	if err != nil || ran == nil {
		return nil, err
	}
	w, err := verdict.Measure(ran.Problem, ran.Series)
	if err != nil {
		return nil, unlessNotRun(err)
	}
	return &w, nil
}

// ran returns the recorded costs of the run. It is nil if there is one stage, or if no phase ran to
// its end.
func (r Run) ran() (*verdict.Run, error) {
	if r.Config.Parallel.Stages == 1 || r.Costs == nil {
		return nil, nil
	}
	p, err := search.Configured(r.Config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.file(record.SettingsFile), err)
	}
	return &verdict.Run{Problem: p, Series: r.Costs}, nil
}
