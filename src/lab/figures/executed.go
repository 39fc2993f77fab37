package figures

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/files"
	"dynmo/src/lab/report"
	"dynmo/src/lab/study"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

// executedStudy is runs that were really executed, as the folder executed of the results keeps them.
type executedStudy struct {
	Format  int           `json:"format"` // of this file: 1
	Name    string        `json:"name"`   // FIGURE-WORDS, as the file's
	Clock   string        `json:"clock"`  // of all runs
	Command string        `json:"command"`
	Origin  string        `json:"origin"` // revision, processor and kernels of the first run
	Runs    []executedRun `json:"runs"`
}

// executedRun is the last phase of a run: the steps after the last change of the model or of the
// layout.
type executedRun struct {
	Run       string  `json:"run"`
	Kind      string  `json:"kind"` // of dynamism
	Balancer  string  `json:"balancer"`
	Moves     bool    `json:"moves"` // layers may move
	Replayed  bool    `json:"replayed,omitempty"`
	Blocks    int     `json:"blocks"`
	Stages    int     `json:"stages"`
	Replicas  int     `json:"replicas"`
	Delay     float64 `json:"delay"` // comm.delay_most
	Step      int     `json:"step"`  // first of the phase
	Steps     int     `json:"steps"`
	Measured  float64 `json:"measured"`  // seconds, makespan of a step
	Predicted float64 `json:"predicted"` // the same simulated on the costs of the phase
}

// executedGroups are the figures that executed runs are drawn in, and what a group of bars is.
var executedGroups = map[string]func(executedRun) string{
	"fig3":   func(r executedRun) string { return r.Kind },
	"fig7":   func(r executedRun) string { return fmt.Sprintf("delays to %v", r.Delay) },
	"fig8":   func(r executedRun) string { return fmt.Sprint(r.Stages*r.Replicas, " ranks") },
	"table1": func(r executedRun) string { return fmt.Sprint(r.Blocks, " layers") },
}

// Collect keeps executed runs as the study of a name in the folder of results. The name begins
// with a figure's. Runs that have not finished and simulated runs are left out, and the error names
// them.
func Collect(results, name, command string, dirs []string) error {
	s := executedStudy{Format: format, Name: name, Command: command}
	var problems []error
	for _, dir := range dirs {
		r, clock, origin, err := readExecuted(dir)
		switch {
		case err != nil:
			problems = append(problems, err)
			continue
		case len(s.Runs) == 0:
			s.Clock, s.Origin = clock, origin
		case clock != s.Clock:
			problems = append(problems, fmt.Errorf("%s: clock=%s, want %s as the runs before: times of different clocks do not compare", dir, clock, s.Clock))
			continue
		}
		s.Runs = append(s.Runs, r)
	}
	if len(s.Runs) == 0 && len(problems) > 0 {
		return errors.Join(problems...)
	}
	if err := s.check(name); err != nil {
		return errors.Join(append(problems, err)...)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	text = []byte(strings.ReplaceAll(string(text), `{"run":`, "\n"+`{"run":`)) // a run a line
	path := filepath.Join(results, "executed", name+".json")
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return errors.Join(append(problems, files.WriteText(path, string(text)+"\n"))...)
}

// readExecuted reads the last phase of a run directory, with its clock and its origin.
func readExecuted(dir string) (out executedRun, clock, origin string, err error) {
	r, err := report.ReadAll(dir)
	switch {
	case err != nil:
		return out, "", "", err
	case r.Metrics[0].Clock == record.Simulated:
		return out, "", "", fmt.Errorf("%s: a simulated run (clock=sim), want one that dynmo train executed", dir)
	case r.End == nil || r.End.Status != verdict.Finished:
		return out, "", "", fmt.Errorf("%s: the run has not finished, want one that has", dir)
	}
	list := study.Replay(r.Costs)
	if len(list) == 0 {
		return out, "", "", fmt.Errorf("%s: no phase has measured costs, want a costs.jsonl with one", dir)
	}
	last, c := list[len(list)-1], r.Config
	if p := r.Provenance; p != nil {
		origin = fmt.Sprintf("Revision %s, %s, kernels %s", p.Revision, p.CPU, p.Kernels)
	}
	return executedRun{
		Run: filepath.Base(dir), Kind: c.Dynamic.Kind, Balancer: c.Balance.String(), Moves: c.Balance.Moves(), Replayed: c.Dynamic.Replay != "",
		Blocks: c.Model.Blocks, Stages: c.Parallel.Stages, Replicas: c.Parallel.Replicas, Delay: c.Comm.DelayMost,
		Step: last.Step, Steps: last.Steps, Measured: last.Measured, Predicted: last.Predicted,
	}, r.Costs[0].Clock, origin, nil
}

// check refuses what is no study of the name. The error names the field.
func (s executedStudy) check(name string) error {
	figure, _, _ := strings.Cut(name, "-")
	switch {
	case s.Format != format:
		return fmt.Errorf("format: %d, want %d", s.Format, format)
	case s.Name != name:
		return fmt.Errorf("name: %q, want %q", s.Name, name)
	case executedGroups[figure] == nil || figure == name:
		return fmt.Errorf("name: %q, want FIGURE-WORDS, where FIGURE is fig3, fig7, fig8 or table1", name)
	case len(s.Runs) == 0:
		return errors.New("runs: none, want one or more that finished")
	}
	for i, r := range s.Runs {
		if !(r.Measured > 0 && r.Predicted > 0) || r.Kind == "" {
			return fmt.Errorf("runs[%d]: kind %q, measured %v, predicted %v, want a kind and seconds above 0", i, r.Kind, r.Measured, r.Predicted)
		}
	}
	return nil
}

// addExecuted adds a panel of executed runs, if the folder of results has some of the figure. Wrong
// files are left out, and the error names them.
func (f *Figure) addExecuted(results string) error {
	group := executedGroups[f.Name]
	paths, err := filepath.Glob(filepath.Join(results, "executed", f.Name+"-*.json"))
	if group == nil || err != nil || len(paths) == 0 {
		return err
	}
	slices.SortFunc(paths, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }) // 8 before 24
	p := Panel{Title: "Executed (points), and simulated on the costs of the same steps (bars): balancing over static cuts", Form: formBars, Y: "speedup"}
	var problems []error
	var words []string // of studies, one for each pair of series
	runs := map[string][]executedRun{}
	for _, path := range paths {
		s, err := readExecutedStudy(path)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", path, err))
			continue
		}
		own := strings.ReplaceAll(strings.TrimPrefix(s.Name, f.Name+"-"), "-", " ")
		f.Notes = append(f.Notes, fmt.Sprintf("Executed, %s: clock=%s; the steps after the last change.", own, s.Clock))
		f.executed = append(f.executed, fmt.Sprintf("Executed, %s: %s. %s.", own, s.Command, s.Origin))
		if !slices.ContainsFunc(s.Runs, func(r executedRun) bool { return group(r) != own }) {
			own = "" // studies that are a group each share a pair of series
		}
		if !slices.Contains(words, own) {
			words = append(words, own)
		}
		runs[own] = append(runs[own], s.Runs...)
		for _, r := range s.Runs {
			if g := group(r); !slices.Contains(p.Groups, g) {
				p.Groups = append(p.Groups, g)
			}
		}
	}
	for _, own := range words {
		simulated, executed := Series{Name: strings.TrimSpace("simulated " + own)}, Series{Name: strings.TrimSpace("executed " + own), Role: roleExecuted}
		for _, g := range p.Groups {
			measured, predicted := speedups(runs[own], func(r executedRun) bool { return group(r) == g })
			simulated.Values, executed.Values = append(simulated.Values, predicted), append(executed.Values, measured)
		}
		p.Series = append(p.Series, simulated, executed)
	}
	if len(p.Series) > 0 {
		f.Panels = append(f.Panels, p)
	}
	return errors.Join(problems...)
}

// readExecutedStudy reads a file of executed runs.
func readExecutedStudy(path string) (s executedStudy, err error) {
	text, err := files.Read(path, files.Loads)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil {
		err = s.check(strings.TrimSuffix(filepath.Base(path), ".json"))
	}
	return s, err
}

// speedups returns the speedup of the fastest moving balancer over the fastest static cuts, of
// some runs: measured and simulated. It is missing without runs of both.
func speedups(runs []executedRun, counts func(executedRun) bool) (measured, predicted float64) {
	var fastest [2]executedRun // static, moving
	for _, r := range runs {
		k := 0
		if r.Moves {
			k = 1
		}
		if counts(r) && (fastest[k].Measured == 0 || r.Measured < fastest[k].Measured) {
			fastest[k] = r
		}
	}
	if fastest[0].Measured == 0 || fastest[1].Measured == 0 {
		return math.NaN(), math.NaN()
	}
	return fastest[0].Measured / fastest[1].Measured, fastest[0].Predicted / fastest[1].Predicted
}
