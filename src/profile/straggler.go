package profile

import (
	"slices"

	"dynmo/src/trace"
)

const (
	// ReportEvery is the number of steps over which stragglers are searched.
	ReportEvery = 10
	// straggles is the score below which a rank is a straggler, the value of NVIDIA's Resiliency
	// Extension.
	straggles = 0.75
)

// Straggler is a rank that is slower than the others, or one that has recovered.
type Straggler struct {
	Stage, Replica int
	// Score is the pace of the median stage divided by the pace of the rank: 1 for a rank like the
	// others, 0.5 for one that takes twice as long for the same work.
	Score float64
	Over  bool // the rank recovered
}

// Stragglers finds ranks that are slower than others. The paces of single steps vary on a shared
// machine, so the median over ReportEvery steps counts.
type Stragglers struct {
	paces    [][]float64  // of the steps since the last report, by step and stage
	replicas []int        // by stage: the slowest replica in the newest step
	told     map[int]bool // by stage: whether its rank was last reported as a straggler
}

// Note takes a step. After every ReportEvery steps it returns the ranks that became stragglers or
// recovered since the last report.
func (s *Stragglers) Note(m Measurement) []Straggler {
	if len(s.replicas) != len(m.Paces) || m.Changed { // after a change of the model, paces give no information about ranks
		*s = Stragglers{}
	}
	s.replicas = m.Slowest
	if s.paces = append(s.paces, m.Paces); len(s.paces) < ReportEvery {
		return nil
	}
	scores := s.scores()
	s.paces = nil
	var list []Straggler
	for stage, score := range scores {
		if slow := score < straggles; slow != s.told[stage] {
			list = append(list, Straggler{stage, s.replicas[stage], score, !slow})
		}
	}
	for _, x := range list {
		if s.told == nil {
			s.told = make(map[int]bool)
		}
		s.told[x.Stage] = !x.Over
	}
	return list
}

// scores returns the score of every stage's slowest rank.
func (s *Stragglers) scores() []float64 {
	out := make([]float64, len(s.replicas))
	column := make([]float64, len(s.paces))
	for stage := range out {
		for i, paces := range s.paces {
			column[i] = paces[stage]
		}
		out[stage] = trace.Median(column)
	}
	sorted := slices.Sorted(slices.Values(out))
	typical := sorted[(len(sorted)-1)/2]
	for stage := range out {
		out[stage] = typical / out[stage]
	}
	return out
}

// nowTaken returns by stage the newest step's time over that of the fastest stage at its best, for
// the same work.
func (e *estimator) nowTaken() []float64 {
	out := slices.Clone(e.took)
	for stage, x := range e.moved {
		out[stage] *= x
	}
	return out
}
