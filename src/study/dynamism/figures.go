package dynamism

import (
	"dynmo/src/record"
	"dynmo/src/trace"
)

// Row is what a run of a case shows: medians over the steps at its end, but for the
// overhead.
type Row struct {
	Name      string
	Static    bool
	Step      float64 // seconds
	Imbalance float64
	Bubble    float64
	Overhead  float64 // share of all time that measuring, deciding and moving took
	Rare      float64 // the same, with moves as often as the paper's model changes
	Moves     int
	Total     float64 // speedup over the dense model on cuts that never move
	Speedup   float64 // over the best static cuts, same work
}

// Figures is what a case shows.
type Figures struct {
	Case
	Rows     []Row
	Static   int     // row of the best static cuts
	Best     int     // row of the best balancer
	Ceiling  float64 // of the speedup over these static cuts (see balance.Headroom)
	Possible float64 // speedup that the best contiguous cuts of these layers would have, as Ceiling estimates it
}

// Figures to be reached: the part of the ceiling, and the most overhead where the model
// changes at times, and where it does in every iteration.
const (
	ReachCeiling  = 0.95
	mostOverhead  = 0.01
	everyOverhead = 0.05
)

// Reached returns the speedup over its ceiling.
func (f Figures) Reached() float64 { return f.Rows[f.Best].Speedup / f.Ceiling }

// Overhead returns the overhead of the best balancer: where the model changes at times, as
// rarely as in the paper.
func (f Figures) Overhead() float64 {
	if f.Every {
		return f.Rows[f.Best].Overhead
	}
	return f.Rows[f.Best].Rare
}

// Most returns the largest overhead that is allowed.
func (f Figures) Most() float64 {
	if f.Every {
		return everyOverhead
	}
	return mostOverhead
}

// Figures returns what the runs show. Speedups are medians over the steps, each beside
// the same step of the other run.
func (m Measured) Figures() Figures {
	f := Figures{Case: m.Case, Static: 1}
	for _, r := range m.Runs {
		f.Rows = append(f.Rows, r.row(m.Interval))
	}
	for i, r := range f.Rows {
		switch {
		case i == 0:
		case r.Static && r.Step < f.Rows[f.Static].Step:
			f.Static = i
		case !r.Static && (f.Best == 0 || r.Step < f.Rows[f.Best].Step):
			f.Best = i
		}
	}
	for i := range f.Rows {
		f.Rows[i].Total = over(m.Runs[0], m.Runs[i])
		f.Rows[i].Speedup = over(m.Runs[f.Static], m.Runs[i])
	}
	static := m.Runs[f.Static].settled()
	f.Ceiling = median(static, func(m record.Metrics) record.Float { return ofStep(m, float64(m.Headroom)) })
	f.Possible = median(static, func(m record.Metrics) record.Float { return ofStep(m, possible(m, f.batch()*max(1, f.Replicas))) })
	return f
}

// possible returns how many times faster a step would be on the cuts with the smallest
// bottleneck of all contiguous ones, by the estimate of balance.Headroom: the first
// microbatch passes all stages, behind it the bottleneck delivers one after the other.
func possible(m record.Metrics, batch int) float64 {
	passed := float64(m.BatchSize / batch) // microbatches
	behind, all := passed-1, float64(m.Idle.Busy)/passed*stages
	return (all + behind*float64(m.Bottleneck)) / (all + behind*float64(m.Optimum))
}

// ofStep returns the speedup of a step whose makespan is so many times shorter: what
// follows it, the update, stays.
func ofStep(m record.Metrics, speedup float64) record.Float {
	return m.StepSeconds / (m.StepSeconds - m.Makespan + m.Makespan/record.Float(speedup))
}

// settled returns the steps at the end of the run.
func (r Run) settled() []record.Metrics { return r.Metrics[len(r.Metrics)-len(r.Metrics)/settled:] }

func (r Run) row(interval int) Row {
	last := r.settled()
	row := Row{
		Name: r.Name, Static: r.Static, Moves: r.Moves, Step: median(last, seconds),
		Imbalance: median(last, func(m record.Metrics) record.Float { return m.Imbalance }),
		Bubble:    median(last, func(m record.Metrics) record.Float { return m.BubbleRatio }),
	}
	all, balancing := 0.0, 0.0
	for _, m := range r.Metrics {
		all += float64(m.StepSeconds + m.BalanceSeconds)
		balancing += float64(m.BalanceSeconds)
	}
	row.Overhead = balancing / all
	usual := median(last, func(m record.Metrics) record.Float { return m.BalanceSeconds })
	rare := max(0, balancing-usual*float64(len(r.Metrics))) / float64(max(interval, len(r.Metrics)))
	row.Rare = (usual + rare) / (usual + rare + row.Step)
	return row
}

func seconds(m record.Metrics) record.Float { return m.StepSeconds }

// over returns how many times faster b is than a.
func over(a, b Run) float64 {
	ratios := make([]float64, 0, len(a.Metrics))
	x, y := a.settled(), b.settled()
	for i := range x {
		ratios = append(ratios, float64(x[i].StepSeconds/y[i].StepSeconds))
	}
	return trace.Median(ratios)
}

// median returns the median of a number of steps.
func median(steps []record.Metrics, of func(record.Metrics) record.Float) float64 {
	values := make([]float64, len(steps))
	for i, m := range steps {
		values[i] = float64(of(m))
	}
	return trace.Median(values)
}
