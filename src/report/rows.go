package report

import "dynmo/src/record"

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
}

// Rows returns the figures of Table, a row for each run.
func Rows(runs []Run) []Row {
	var rows []Row
	for _, r := range runs {
		s := r.summarise()
		rows = append(rows, Row{
			Run: s.Name, Stages: r.Config.Parallel.Stages, Replicas: r.Config.Parallel.Replicas, Balancer: s.Balancer, Clock: s.Clock,
			Loss: record.Float(s.Loss), Before: record.Float(s.Before), After: record.Float(s.After), Bubble: record.Float(s.Bubble),
			Imbalance: record.Float(s.Imbalance), Moved: s.Moved, Overhead: record.Float(s.Overhead), Ceiling: record.Float(s.Ceiling),
		})
	}
	return rows
}
