package report

import (
	"fmt"
	"math"

	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

// Row is the line of a run in Table as data for programs. Times are in seconds on Clock.
type Row struct {
	Run       string       `json:"run"`
	Stages    int          `json:"stages"`
	Replicas  int          `json:"replicas"`
	Balancer  string       `json:"balancer"`
	Clock     string       `json:"clock"`
	Loss      record.Float `json:"loss"`
	Before    record.Float `json:"before_seconds"`
	After     record.Float `json:"after_seconds"`
	Bubble    record.Float `json:"bubble_ratio"`
	Imbalance record.Float `json:"imbalance"` // (max - min) / mean of the stages' busy seconds
	Moved     int64        `json:"moved_bytes"`
	Overhead  record.Float `json:"balancing_share"` // measuring, deciding and moving, as a share of all training time
	Headroom  record.Float `json:"headroom"`
	// Figures of the final model.
	Sparsity record.Float `json:"sparsity"`
	Frozen   int          `json:"frozen_layers"`
	Work     record.Float `json:"work_share"` // share of the tokens or of attention's scores, mean over the blocks; null if blocks work on all
	// Figures of Worths.Table; null if they are not known.
	Simulated record.Float `json:"simulated_seconds"`
	Speedup   record.Float `json:"speedup"`
	Low       record.Float `json:"speedup_low"`
	High      record.Float `json:"speedup_high"`
	Ceiling   record.Float `json:"ceiling"`
	// Figures of Packings; null if they are not known or nothing was packed.
	RanksFirst     int          `json:"ranks_first"`
	RanksLast      int          `json:"ranks_last"`
	MeanRanks      record.Float `json:"mean_ranks"`
	FreeSeconds    record.Float `json:"free_rank_seconds"`
	NodesFirst     int          `json:"nodes_first"`
	NodesLast      int          `json:"nodes_last"`
	NodesGivenBack int          `json:"nodes_given_back"`
	HoursGivenBack record.Float `json:"node_hours_given_back"`
	NodesIdle      int          `json:"nodes_idle"`
	HoursIdle      record.Float `json:"node_hours_idle"`
	Packings       int          `json:"packings"`
	Releases       int          `json:"releases"`
	Failed         int          `json:"releases_failed"`
	Throughput     record.Float `json:"throughput"`
	Predicted      record.Float `json:"throughput_predicted"`
}

// Rows returns the figures of Table and Worths.Table, a row for each run.
func Rows(runs []Run) ([]Row, error) {
	worths, err := Weigh(runs)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for i, r := range runs {
		w := verdict.Result{Steps: 1, Used: math.NaN(), Speedup: math.NaN(), Low: math.NaN(), High: math.NaN(), Ceiling: math.NaN()}
		if worths.of[i] != nil {
			w = *worths.of[i]
			if w.Doubt != "" {
				w.Speedup, w.Low, w.High, w.Ceiling = math.NaN(), math.NaN(), math.NaN(), math.NaN()
			}
		}
		row := r.row()
		seen, share := r.changer().end()
		row.Sparsity, row.Frozen, row.Work = record.Float(seen.Sparsity), seen.Frozen, record.Float(share)
		row.Simulated, row.Speedup = record.Float(w.Used/float64(w.Steps)), record.Float(w.Speedup)
		row.Low, row.High, row.Ceiling = record.Float(w.Low), record.Float(w.High), record.Float(w.Ceiling)
		row.pack(r)
		rows = append(rows, row)
	}
	return rows, nil
}

// row returns the figures of Table. Before is the median over the steps before the first move or
// change. The others are medians over the second half of the steps after the last move or change. Without
// any move or change all are medians over the second half of the run. As in a Summary, the latest MostPaces
// steps count.
func (r Run) row() Row {
	first, p := r.first(), r.Config.Parallel
	after := r.lastSteps().late()
	after.lo = max(after.lo, after.hi-verdict.MostPaces/2)
	if first == r.whole() {
		first = after
	}
	first.lo = max(first.lo, first.hi-verdict.MostPaces)
	row := Row{
		Run: r.label(), Stages: p.Stages, Replicas: p.Replicas, Balancer: r.Config.Balance.String(), Clock: r.Metrics[0].Clock,
		Loss: r.Metrics[len(r.Metrics)-1].Loss, Before: r.middle(first, stepSeconds), After: r.middle(after, stepSeconds),
		Bubble:    r.middle(after, func(m record.Metrics) record.Float { return m.BubbleRatio }),
		Imbalance: r.middle(after, func(m record.Metrics) record.Float { return m.Imbalance }),
		Headroom:  r.middle(after, func(m record.Metrics) record.Float { return m.Headroom }),
	}
	var spent, balancing record.Float
	for _, e := range r.Events {
		if e.Moved() {
			row.Moved += e.Bytes
		}
	}
	for _, m := range r.Metrics {
		balancing += m.BalanceSeconds
		spent += m.StepSeconds + m.BalanceSeconds
	}
	row.Overhead = balancing / spent
	return row
}

// layout formats the stages and replicas.
func (row Row) layout() string { return fmt.Sprintf("%d x %d", row.Stages, row.Replicas) }

// title names a run in a sentence.
func (row Row) title() string {
	return fmt.Sprintf("%s, %s, %s", row.Run, row.layout(), shortly(row.Balancer))
}

// pack sets the figures of Packings in a row.
func (row *Row) pack(r Run) {
	p := r.packing()
	if p == nil {
		first, last, unknown := r.Metrics[0], r.Metrics[len(r.Metrics)-1], record.Float(math.NaN())
		p = &verdict.Packing{
			RanksFirst: first.Ranks, RanksLast: last.Ranks, NodesFirst: first.Nodes, NodesLast: last.Nodes,
			MeanRanks: unknown, FreeRankSeconds: unknown, HoursGivenBack: unknown, HoursIdle: unknown,
		}
	}
	row.RanksFirst, row.RanksLast, row.MeanRanks, row.FreeSeconds = p.RanksFirst, p.RanksLast, p.MeanRanks, p.FreeRankSeconds
	row.NodesFirst, row.NodesLast = p.NodesFirst, p.NodesLast
	row.NodesGivenBack, row.HoursGivenBack, row.NodesIdle, row.HoursIdle = p.NodesGivenBack, p.HoursGivenBack, p.NodesIdle, p.HoursIdle
	row.Packings, row.Releases, row.Failed = p.Packings, p.Releases, p.Failed
	row.Throughput, row.Predicted = known(p.Throughput), known(p.Predicted)
}

// known returns a share, or NaN for 0, which means not known.
func known(share record.Float) record.Float {
	if share == 0 {
		return record.Float(math.NaN())
	}
	return share
}
