package report

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"dynmo/src/config"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

// Worths is the value of moving layers in several runs.
type Worths struct {
	runs   []Run
	of     []*verdict.Result // by run; nil without costs
	groups []group
}

// group is runs that did the same work, by their indices.
type group struct {
	runs   []int
	static int // the run that never moved layers with which all runs are compared; -1: each run with its own first cuts
}

// Weigh returns the value of moving layers for each run. Executed runs that did the same work are
// compared on the costs measured by all of them, simulated runs with each other on their own costs.
func Weigh(runs []Run) (Worths, error) {
	w := Worths{runs: runs, of: make([]*verdict.Result, len(runs))}
	known := make(map[string]int) // index of a group, by the work of its runs
	rans := make([]verdict.Run, len(runs))
	for i, r := range runs {
		ran, err := r.ran()
		if err != nil {
			return w, err
		}
		if ran == nil {
			continue
		}
		rans[i] = *ran
		key := r.placed() + verdict.DescribeWork(ran.Series) + fmt.Sprint(r.simulated())
		if _, ok := known[key]; !ok {
			known[key] = len(w.groups)
			w.groups = append(w.groups, group{static: -1})
		}
		g := &w.groups[known[key]]
		g.runs = append(g.runs, i)
	}
	for i := range w.groups {
		if err := w.groups[i].compare(rans, w.of); err != nil {
			return w, err
		}
	}
	for i, worth := range w.of {
		if end := runs[i].End; worth != nil && end != nil && end.Worth != nil {
			worth.Doubt = end.Worth.Doubt
		}
	}
	return w, nil
}

// compare sets the values of the runs of a group, and the run with which they are compared.
func (g *group) compare(rans []verdict.Run, worths []*verdict.Result) error {
	list := make([]verdict.Run, len(g.runs))
	for k, i := range g.runs {
		list[k] = rans[i]
	}
	if len(list) == 1 {
		w, err := verdict.Measure(list[0].Problem, list[0].Series)
		if err == nil {
			worths[g.runs[0]] = &w
		}
		return unlessNotRun(err)
	}
	compared, static, err := verdict.Compare(list)
	for k := range compared {
		worths[g.runs[k]] = &compared[k]
	}
	if static >= 0 {
		g.static = g.runs[static]
	}
	return unlessNotRun(err)
}

func unlessNotRun(err error) error {
	if errors.Is(err, verdict.ErrNotRun) {
		return nil
	}
	return err
}

// placed returns the settings of a run without the settings that only affect the placement of
// layers. Reports name those elsewhere.
func (r Run) placed() string {
	c, standard := r.Config, config.Default()
	c.Run.Name, c.Run.TraceSteps, c.Train.LogEvery, c.Balance = standard.Run.Name, standard.Run.TraceSteps, standard.Train.LogEvery, standard.Balance
	return c.TOML()
}

// Known reports whether the value of any run is known.
func (w Worths) Known() bool {
	return slices.ContainsFunc(w.of, func(w *verdict.Result) bool { return w != nil })
}

// Table writes a table with the value of moving layers in each run, beside its measured step times. Notes on
// its columns follow.
func (w Worths) Table(out io.Writer) error {
	header := []string{"run", "balancer", "before", "after", "clock", "simulated", "speedup", intervalColumn, "ceiling"}
	var rows [][]string
	ms := func(seconds record.Float) string { return fmt.Sprintf("%.1f ms", 1e3*seconds) }
	for i, r := range w.runs {
		s := r.row()
		row := []string{s.Run, shortly(s.Balancer), ms(s.Before), ms(s.After), s.Clock, "-", "-", "-", "-"}
		if w := w.of[i]; w != nil {
			row = append(row[:5], ms(record.Float(w.Used/float64(w.Steps))), fmt.Sprintf("%.2fx", w.Speedup), spread(*w),
				fmt.Sprintf("%.2fx", w.Ceiling))
			if w.Doubt != "" {
				row = append(row[:6], "-", "-", "-")
			}
		}
		rows = append(rows, row)
	}
	return explained(out, header, rows, worthNotes)
}
