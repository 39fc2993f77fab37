package report

import (
	"fmt"
	"io"
	"math"
	"slices"

	"dynmo/src/dynamic"
	"dynmo/src/record"
)

// PhaseRow is a line of Phases as data for programs: of one run, the second half of the steps between
// two changes of its model. Numbers are medians. Times are in seconds on Clock.
type PhaseRow struct {
	Run        string       `json:"run"`
	Step       int          `json:"step"` // the first step after the change
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

// PhaseRows returns, for every phase, one row for each run. The first run is the baseline of the
// others. Runs must have changed their models as often.
func PhaseRows(runs []Run) (rows []PhaseRow, err error) {
	base := runs[0].phases()
	changes, phases := make([]changer, len(runs)), make([][]segment, len(runs))
	for k, r := range runs {
		changes[k], phases[k] = r.changer(), r.phases()
		if len(phases[k]) != len(base) {
			return nil, fmt.Errorf("%s has %d phases, %s has %d", r.Dir, len(phases[k]), runs[0].Dir, len(base))
		}
	}
	makespan := func(m record.Metrics) record.Float { return m.Makespan }
	ratio := func(m record.Metrics) record.Float { return m.Makespan / m.Predicted }
	tokens := func(m record.Metrics) record.Float { return m.TokensPerSecond }
	for i := range base {
		for k, r := range runs {
			s, first := phases[k][i].late(), base[i].late()
			d, work := changes[k].change(s)
			rows = append(rows, PhaseRow{
				Run: r.label(), Step: r.Metrics[phases[k][i].lo].Step, Balancer: r.Config.Balance.String(), Clock: r.Metrics[s.lo].Clock,
				Sparsity: record.Float(d.Sparsity), Frozen: d.Frozen, Work: record.Float(work),
				Makespan: r.middle(s, makespan), Speedup: runs[0].middle(first, makespan) / r.middle(s, makespan),
				Bottleneck: r.middle(s, func(m record.Metrics) record.Float { return m.Bottleneck }),
				Optimum:    r.middle(s, func(m record.Metrics) record.Float { return m.Optimum }),
				Gap:        r.middle(s, func(m record.Metrics) record.Float { return m.Bottleneck/m.Optimum - 1 }),
				Headroom:   r.middle(s, func(m record.Metrics) record.Float { return m.Headroom }),
				Predicted:  r.middle(s, func(m record.Metrics) record.Float { return m.Predicted }),
				Ratio:      r.middle(s, ratio), ToFirst: r.middle(s, ratio)/runs[0].middle(first, ratio) - 1,
				Ranks: r.Metrics[s.hi-1].Ranks, Throughput: r.middle(s, tokens) / r.middle(phases[k][0].late(), tokens),
			})
		}
	}
	return rows, nil
}

// Phases writes PhaseRows as a table, and notes on its columns. Lines have at most 100 columns unless wide is true.
func Phases(out io.Writer, runs []Run, wide bool) error {
	var left []string
	if !wide {
		left = []string{"bottleneck", "optimum", "makespan/predicted", "to first"}
	}
	header, lines, err := phaseTable(runs, left...)
	if err != nil {
		return err
	}
	if err := explained(out, header, lines, phaseNotes); err != nil {
		return err
	}
	return origins(out, runs)
}

// phaseTable formats PhaseRows without some columns. Columns about changes that no run had are left
// out too.
func phaseTable(runs []Run, left ...string) (header []string, lines [][]string, err error) {
	rows, err := PhaseRows(runs)
	for _, p := range rows {
		ms := func(seconds record.Float) string { return fmt.Sprintf("%.2f ms", 1e3*seconds) }
		sparsity, work := "-", ""
		if !math.IsNaN(float64(p.Sparsity)) {
			sparsity = fmt.Sprintf("%.4f", p.Sparsity)
		}
		if !math.IsNaN(float64(p.Work)) {
			work = dynamic.Percent(float64(p.Work))
		}
		lines = append(lines, []string{
			fmt.Sprint(p.Step), sparsity, fmt.Sprint(p.Frozen), work, shortly(p.Balancer), fmt.Sprint(p.Ranks), times(p.Throughput),
			ms(p.Makespan), fmt.Sprintf("%.3fx", p.Speedup), ms(p.Bottleneck), ms(p.Optimum), fmt.Sprintf("%.1f %%", 100*p.Gap), fmt.Sprintf("%.3fx", p.Headroom),
			ms(p.Predicted), fmt.Sprintf("%.3f", p.Ratio), fmt.Sprintf("%+.1f %%", 100*p.ToFirst), p.Clock,
		})
	}
	header = []string{"step", "sparsity", "frozen", "work", "balancer", "ranks", "throughput", "makespan", "speedup", "bottleneck", "optimum", "gap", "headroom", "predicted", "makespan/predicted", "to first", "clock"}
	if !slices.ContainsFunc(rows, func(p PhaseRow) bool { return p.Sparsity > 0 }) {
		left = append(left, "sparsity")
	}
	if !slices.ContainsFunc(rows, func(p PhaseRow) bool { return p.Frozen > 0 }) {
		left = append(left, "frozen")
	}
	if !slices.ContainsFunc(rows, func(p PhaseRow) bool { return p.Work >= 0 }) {
		left = append(left, "work")
	}
	if !slices.ContainsFunc(runs, func(r Run) bool { return r.packing() != nil }) {
		left = append(left, "ranks", "throughput")
	}
	header, lines = without(header, lines, left...)
	return header, lines, err
}
