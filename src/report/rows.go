package report

import (
	"math"

	"dynmo/src/plan"
	"dynmo/src/record"
)

// Row is what Table shows of a run, for programs. Times are in seconds on Clock.
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
	Ceiling   record.Float `json:"ceiling"`
	// Figures of the model at the end.
	Sparsity record.Float `json:"sparsity"`
	Frozen   int          `json:"frozen_layers"`
	Work     record.Float `json:"work_share"` // of the tokens or of attention's scores, mean over the blocks; null where all are worked on
	// Figures of Worths.Table; null where costs do not tell.
	Simulated record.Float `json:"simulated_seconds"`
	Speedup   record.Float `json:"speedup"`
	Low       record.Float `json:"speedup_low"`
	High      record.Float `json:"speedup_high"`
	Best      record.Float `json:"speedup_best"`
}

// Rows returns the figures of Table and Worths.Table, a row for each run.
func Rows(runs []Run) ([]Row, error) {
	worths, err := Weigh(runs)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for i, r := range runs {
		w := plan.Worth{Steps: 1, Used: math.NaN(), Speedup: math.NaN(), Low: math.NaN(), High: math.NaN(), Ceiling: math.NaN()}
		if worths.of[i] != nil {
			w = *worths.of[i]
		}
		s, d := r.summarise(), r.changer().end()
		rows = append(rows, Row{
			Run: s.Name, Stages: r.Config.Parallel.Stages, Replicas: r.Config.Parallel.Replicas, Balancer: s.Balancer, Clock: s.Clock,
			Loss: record.Float(s.Loss), Before: record.Float(s.Before), After: record.Float(s.After), Bubble: record.Float(s.Bubble),
			Imbalance: record.Float(s.Imbalance), Moved: s.Moved, Overhead: record.Float(s.Overhead), Ceiling: record.Float(s.Ceiling),
			Sparsity: record.Float(d.Sparsity), Frozen: d.Frozen, Work: record.Float(d.Work),
			Simulated: record.Float(w.Used / float64(w.Steps)), Speedup: record.Float(w.Speedup),
			Low: record.Float(w.Low), High: record.Float(w.High), Best: record.Float(w.Ceiling),
		})
	}
	return rows, nil
}
