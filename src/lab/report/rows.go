package report

import (
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
	Imbalance record.Float `json:"imbalance"`
	Moved     int64        `json:"moved_bytes"`
	Overhead  record.Float `json:"balancing_share"`
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
		s, d := r.summarise(), r.changer().end()
		row := Row{
			Run: s.Name, Stages: r.Config.Parallel.Stages, Replicas: r.Config.Parallel.Replicas, Balancer: s.Balancer, Clock: s.Clock,
			Loss: record.Float(s.Loss), Before: record.Float(s.Before), After: record.Float(s.After), Bubble: record.Float(s.Bubble),
			Imbalance: record.Float(s.Imbalance), Moved: s.Moved, Overhead: record.Float(s.Overhead), Headroom: record.Float(s.Headroom),
			Sparsity: record.Float(d.Sparsity), Frozen: d.Frozen, Work: record.Float(d.Work),
			Simulated: record.Float(w.Used / float64(w.Steps)), Speedup: record.Float(w.Speedup),
			Low: record.Float(w.Low), High: record.Float(w.High), Ceiling: record.Float(w.Ceiling),
		}
		row.pack(r)
		rows = append(rows, row)
	}
	return rows, nil
}

// pack sets the figures of Packings in a row.
func (row *Row) pack(r Run) {
	p := r.packing()
	if p == nil {
		first, last, unknown := r.Metrics[0], r.Metrics[len(r.Metrics)-1], record.Float(math.NaN())
		row.RanksFirst, row.RanksLast, row.NodesFirst, row.NodesLast = first.Ranks, last.Ranks, first.Nodes, last.Nodes
		row.MeanRanks, row.FreeSeconds, row.HoursGivenBack, row.HoursIdle, row.Throughput, row.Predicted = unknown, unknown, unknown, unknown, unknown, unknown
		return
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
