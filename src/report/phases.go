package report

import (
	"fmt"
	"io"
	"slices"

	"dynmo/src/record"
)

// phase is a run of steps in which the model does not change.
type phase struct {
	first    int              // step
	sparsity float64          // 0 before the first pruning
	steps    []record.Metrics // the second half of them: by then layers have moved
}

// phases cuts a run at its changes of the model.
func (r Run) phases() []phase {
	list := []phase{{first: r.Metrics[0].Step, steps: r.Metrics}}
	begin := 0
	for _, e := range r.Events {
		at := r.index(e.Step)
		if e.Kind != record.Dynamic || at < begin || at >= len(r.Metrics) {
			continue
		}
		list[len(list)-1].steps = r.Metrics[begin:at]
		begin = at
		sparsity, _ := e.Detail["sparsity"].(float64)
		list = append(list, phase{first: e.Step, sparsity: sparsity, steps: r.Metrics[begin:]})
	}
	// Pruned before the first step, or twice before the same one.
	list = slices.DeleteFunc(list, func(p phase) bool { return len(p.steps) == 0 })
	for i := range list {
		list[i].steps = list[i].steps[len(list[i].steps)/2:]
	}
	return list
}

// Phases writes, for every phase of the runs, one line for each run: the cost of
// its cuts, their distance from the best, and the measured makespan beside the
// predicted one. The others are compared with the first run. Runs must have
// been pruned at the same steps. At most 100 columns are written, unless all are wanted.
func Phases(out io.Writer, runs []Run, wide bool) error {
	rows, err := phaseRows(runs)
	if err != nil {
		return err
	}
	header := phaseHeader
	if !wide {
		header, rows = without(header, rows, "bottleneck", "optimum", "makespan/predicted", "to first")
	}
	return record.Table(out, header, rows)
}

var phaseHeader = []string{"sparsity", "balancer", "makespan", "speedup", "bottleneck", "optimum", "gap", "ceiling", "predicted", "makespan/predicted", "to first", "clock"}

// phaseRows returns the lines of Phases, under phaseHeader.
func phaseRows(runs []Run) ([][]string, error) {
	rows, err := PhaseRows(runs)
	var lines [][]string
	for _, r := range rows {
		lines = append(lines, r.cells())
	}
	return lines, err
}

// PhaseRow is a line of Phases, for programs. Times are in seconds on Clock.
type PhaseRow struct {
	Run        string       `json:"run"`
	Balancer   string       `json:"balancer"`
	Clock      string       `json:"clock"`
	Sparsity   record.Float `json:"sparsity"`
	Makespan   record.Float `json:"makespan"`
	Speedup    record.Float `json:"speedup"` // of the makespan over the first run's
	Bottleneck record.Float `json:"bottleneck"`
	Optimum    record.Float `json:"optimum"`
	Gap        record.Float `json:"gap"` // bottleneck / optimum - 1
	Ceiling    record.Float `json:"ceiling"`
	Predicted  record.Float `json:"predicted"`
	Ratio      record.Float `json:"makespan_to_predicted"`
	ToFirst    record.Float `json:"to_first"` // that ratio over the first run's, less 1
}

// PhaseRows returns the figures of Phases. Errors are those of Phases.
func PhaseRows(runs []Run) ([]PhaseRow, error) {
	var rows []PhaseRow
	base := runs[0].phases()
	for i := range base {
		for _, r := range runs {
			list := r.phases()
			if len(list) != len(base) {
				return nil, fmt.Errorf("%s has %d phases, %s has %d", r.Dir, len(list), runs[0].Dir, len(base))
			}
			rows = append(rows, phaseRow(r, list[i], base[i]))
		}
	}
	return rows, nil
}

func phaseRow(r Run, p, base phase) PhaseRow {
	of := func(p phase, f func(record.Metrics) record.Float) record.Float {
		return record.Float(middle(p.steps, f))
	}
	makespan := func(m record.Metrics) record.Float { return m.Makespan }
	ratio := func(m record.Metrics) record.Float { return m.Makespan / m.Predicted }
	return PhaseRow{
		Run: r.label(), Balancer: r.Config.Balance.String(), Clock: p.steps[0].Clock, Sparsity: record.Float(p.sparsity),
		Makespan: of(p, makespan), Speedup: of(base, makespan) / of(p, makespan),
		Bottleneck: of(p, func(m record.Metrics) record.Float { return m.Bottleneck }),
		Optimum:    of(p, func(m record.Metrics) record.Float { return m.Optimum }),
		Gap:        of(p, func(m record.Metrics) record.Float { return m.Bottleneck/m.Optimum - 1 }),
		Ceiling:    of(p, func(m record.Metrics) record.Float { return m.Ceiling }),
		Predicted:  of(p, func(m record.Metrics) record.Float { return m.Predicted }),
		Ratio:      of(p, ratio), ToFirst: of(p, ratio)/of(base, ratio) - 1,
	}
}

// cells returns the row for people, under phaseHeader.
func (r PhaseRow) cells() []string {
	ms := func(seconds record.Float) string { return fmt.Sprintf("%.2f ms", 1e3*seconds) }
	return []string{
		fmt.Sprintf("%.4f", r.Sparsity), shortly(r.Balancer), ms(r.Makespan), fmt.Sprintf("%.3fx", r.Speedup),
		ms(r.Bottleneck), ms(r.Optimum), fmt.Sprintf("%.1f %%", 100*r.Gap), fmt.Sprintf("%.3fx", r.Ceiling),
		ms(r.Predicted), fmt.Sprintf("%.3f", r.Ratio), fmt.Sprintf("%+.1f %%", 100*r.ToFirst), r.Clock,
	}
}

// phaseTable returns the phases of one run for its page, with a header, nil if the
// model never changed.
func (r Run) phaseTable() ([][]string, error) {
	list := r.phases()
	if len(list) < 2 {
		return nil, nil
	}
	rows, err := PhaseRows([]Run{r})
	table := [][]string{{"from step", "sparsity, %", "makespan, ms", "predicted, ms", "bottleneck, ms", "optimum, ms", "gap, %", "ceiling"}}
	for i, p := range rows {
		table = append(table, []string{
			fmt.Sprint(list[i].first), record.Significant(100 * float64(p.Sparsity)), milliseconds(p.Makespan), milliseconds(p.Predicted),
			milliseconds(p.Bottleneck), milliseconds(p.Optimum), record.Significant(100 * float64(p.Gap)), fmt.Sprintf("%.2f×", p.Ceiling),
		})
	}
	return table, err
}

// PhasesLegend explains the columns of Phases that are always there.
const PhasesLegend = `medians over the second half of the steps between two prunings
speedup: on the first run's makespan, same work.  predicted: the schedule simulated on the costs
gap: slowest stage above the least possible on the run's costs
ceiling: what the best cuts could still gain on these
`

// WidePhasesLegend explains the others.
const WidePhasesLegend = `bottleneck, optimum: seconds per microbatch of the slowest stage, and the least possible
to first: makespan/predicted against the first run's; 0 % means that the makespan fell by what
  the costs of the stages say
`
