package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"dynmo/src/dynamic"
	"dynmo/src/record"
)

// phase is consecutive steps without a change of the model.
type phase struct {
	first    int              // number of the first step
	sparsity float64          // 0 before the first pruning
	steps    []record.Metrics // the second half of the steps, after layers have moved
	at       segment          // index range of steps in the metrics of the run
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
		sparsity, ok := e.Detail["sparsity"].(float64)
		if !ok { // a change other than pruning
			sparsity = list[len(list)-1].sparsity
		}
		list = append(list, phase{first: e.Step, sparsity: sparsity, steps: r.Metrics[begin:]})
	}
	// These phases have no steps: a change before the first step, or the first of two changes
	// before one step.
	list = slices.DeleteFunc(list, func(p phase) bool { return len(p.steps) == 0 })
	end := 0
	for i := range list {
		p := &list[i]
		half := len(p.steps) / 2
		p.at = segment{end + half, end + len(p.steps)}
		p.steps, end = p.steps[half:], p.at.hi
	}
	return list
}

// Phases writes, for every phase, one line for each run. The line has the cost of the cuts, their
// distance from the best cuts, and the measured and the predicted makespan. The first run is the
// baseline of the others. Runs must have been pruned at the same steps. Lines have at most 100
// columns unless wide is true.
func Phases(out io.Writer, runs []Run, wide bool) error {
	rows, err := phaseRows(runs)
	if err != nil {
		return err
	}
	header, rows := sayingChanges(phaseHeader, rows)
	if !slices.ContainsFunc(runs, func(r Run) bool { return r.packing() != nil }) {
		header, rows = without(header, rows, "ranks", "throughput")
	}
	if !wide {
		header, rows = without(header, rows, "bottleneck", "optimum", "makespan/predicted", "to first")
	}
	return record.Table(out, header, rows)
}

// sayingChanges removes the columns about the model in which no line has a value. If none has a
// value the column of sparsity stays.
func sayingChanges(header []string, rows [][]string) ([]string, [][]string) {
	quiet := map[string]string{"work, %": "", "work": "", "frozen": "0", "sparsity": "0.0000", "sparsity, %": "0"}
	var silent []string
	told := 0
	for column, name := range header {
		nothing, changes := quiet[name]
		switch {
		case !changes:
		case slices.ContainsFunc(rows, func(row []string) bool { return row[column] != nothing }):
			told++
		default:
			silent = append(silent, name)
		}
	}
	if told == 0 {
		silent = slices.DeleteFunc(silent, func(name string) bool { return strings.HasPrefix(name, "sparsity") })
	}
	return without(header, rows, silent...)
}

var phaseHeader = []string{"sparsity", "frozen", "work", "balancer", "ranks", "throughput", "makespan", "speedup", "bottleneck", "optimum", "gap", "headroom", "predicted", "makespan/predicted", "to first", "clock"}

// phaseRows returns the lines of Phases, under phaseHeader.
func phaseRows(runs []Run) ([][]string, error) {
	rows, err := PhaseRows(runs)
	var lines [][]string
	for _, r := range rows {
		lines = append(lines, r.cells())
	}
	return lines, err
}

// PhaseRow is a line of Phases as data for programs. Times are in seconds on Clock.
type PhaseRow struct {
	Run        string       `json:"run"`
	Balancer   string       `json:"balancer"`
	Clock      string       `json:"clock"`
	Sparsity   record.Float `json:"sparsity"`
	Frozen     int          `json:"frozen_layers"`
	Work       record.Float `json:"work_share"` // share of the tokens or of attention's scores, mean over the blocks; null if blocks work on all
	Makespan   record.Float `json:"makespan"`
	Speedup    record.Float `json:"speedup"` // makespan of the first run divided by this makespan
	Bottleneck record.Float `json:"bottleneck"`
	Optimum    record.Float `json:"optimum"`
	Gap        record.Float `json:"gap"` // bottleneck / optimum - 1
	Headroom   record.Float `json:"headroom"`
	Predicted  record.Float `json:"predicted"`
	Ratio      record.Float `json:"makespan_to_predicted"`
	ToFirst    record.Float `json:"to_first"` // makespan_to_predicted divided by the first run's, minus 1
	Ranks      int          `json:"ranks"`    // ranks that train at the end of the phase; 0: not recorded
	// Throughput is the tokens per second divided by those of the run's first phase.
	Throughput record.Float `json:"throughput"`
}

// PhaseRows returns the figures of Phases. Errors are those of Phases.
func PhaseRows(runs []Run) ([]PhaseRow, error) {
	var rows []PhaseRow
	base := runs[0].phases()
	changes := make([]changer, len(runs))
	for k, r := range runs {
		changes[k] = r.changer()
	}
	for i := range base {
		for k, r := range runs {
			list := r.phases()
			if len(list) != len(base) {
				return nil, fmt.Errorf("%s has %d phases, %s has %d", r.Dir, len(list), runs[0].Dir, len(base))
			}
			row, d := phaseRow(r, list[i], base[i]), changes[k].change(list[i].at)
			row.Throughput = record.Float(middle(list[i].steps, tokensPerSecond) / middle(list[0].steps, tokensPerSecond))
			row.Frozen, row.Work = d.Frozen, record.Float(d.Work)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func tokensPerSecond(m record.Metrics) record.Float { return m.TokensPerSecond }

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
		Headroom:   of(p, func(m record.Metrics) record.Float { return m.Headroom }),
		Predicted:  of(p, func(m record.Metrics) record.Float { return m.Predicted }),
		Ratio:      of(p, ratio), ToFirst: of(p, ratio)/of(base, ratio) - 1,
		Ranks: p.steps[len(p.steps)-1].Ranks,
	}
}

// cells returns the row as text, under phaseHeader.
func (r PhaseRow) cells() []string {
	ms := func(seconds record.Float) string { return fmt.Sprintf("%.2f ms", 1e3*seconds) }
	return []string{
		fmt.Sprintf("%.4f", r.Sparsity), fmt.Sprint(r.Frozen), r.work(), shortly(r.Balancer), fmt.Sprint(r.Ranks), times(r.Throughput), ms(r.Makespan), fmt.Sprintf("%.3fx", r.Speedup),
		ms(r.Bottleneck), ms(r.Optimum), fmt.Sprintf("%.1f %%", 100*r.Gap), fmt.Sprintf("%.3fx", r.Headroom),
		ms(r.Predicted), fmt.Sprintf("%.3f", r.Ratio), fmt.Sprintf("%+.1f %%", 100*r.ToFirst), r.Clock,
	}
}

// work formats the share of the work of blocks, "" if they work on all.
func (r PhaseRow) work() string {
	if math.IsNaN(float64(r.Work)) {
		return ""
	}
	return dynamic.Significant(100*float64(r.Work)) + " %"
}

// phaseTable returns the phases of one run for its page, with a header. It returns nil if the model
// never changed.
func (r Run) phaseTable() ([][]string, error) {
	list := r.phases()
	if len(list) < 2 {
		return nil, nil
	}
	rows, err := PhaseRows([]Run{r})
	table := [][]string{{"from step", "sparsity, %", "frozen", "work, %", "ranks", "throughput", "makespan, ms", "predicted, ms", "bottleneck, ms", "optimum, ms", "gap, %", "headroom"}}
	for i, p := range rows {
		table = append(table, []string{
			fmt.Sprint(list[i].first), dynamic.Significant(100 * float64(p.Sparsity)), fmt.Sprint(p.Frozen), strings.TrimSuffix(p.work(), " %"), fmt.Sprint(p.Ranks), times(p.Throughput), milliseconds(p.Makespan), milliseconds(p.Predicted),
			milliseconds(p.Bottleneck), milliseconds(p.Optimum), dynamic.Significant(100 * float64(p.Gap)), fmt.Sprintf("%.2f×", p.Headroom),
		})
	}
	if err != nil {
		return nil, err
	}
	header, lines := sayingChanges(table[0], table[1:])
	if r.packing() == nil {
		header, lines = without(header, lines, "ranks", "throughput")
	}
	return append([][]string{header}, lines...), nil
}

// PhasesLegend explains the columns of Phases that are always there.
const PhasesLegend = `medians over the second half of the steps between two changes of the model
frozen: layers.  work: share of the tokens, or of attention's scores, that blocks work on
speedup: on the first run's makespan, same work.  predicted: the schedule simulated on the costs
ranks: that train.  throughput: tokens per second, on those of the run's first phase
gap: slowest stage above the least possible on the run's costs
headroom: what the best cuts could still gain on these
`

// WidePhasesLegend explains the others.
const WidePhasesLegend = `bottleneck, optimum: seconds per microbatch of the slowest stage, and the least possible
to first: makespan/predicted against the first run's; 0 % means that the makespan fell by what
  the costs of the stages say
`
