package profile

import (
	"slices"

	"dynmo/src/trace"
)

const (
	// ReportEvery is how many steps stragglers are found by.
	ReportEvery = 10
	// straggles is the score below which a rank is a straggler, as in NVIDIA's Resiliency
	// Extension.
	straggles = 0.75
)

// Straggler is a rank that is slower than the others, or is so no longer.
type Straggler struct {
	Stage, Replica int
	// Score is the pace of the median stage by that of the rank's: 1 for a rank like the
	// others, 0.5 for one that takes twice as long for the same work.
	Score float64
	Over  bool // the rank recovered
}

// Stragglers finds ranks that are slower than others. A step's paces vary where a machine
// is shared: what counts is the median over ReportEvery steps.
type Stragglers struct {
	paces    [][]float64 // of the steps since the last report
	replicas []int       // by stage, in the newest of them
	told     map[int]bool
}

// Note takes a step, and returns after every ReportEvery of them what is new.
func (s *Stragglers) Note(m Measurement) []Straggler {
	if len(s.replicas) != len(m.Paces) || m.Changed { // what layers cost says nothing of ranks yet
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

// nowTaken returns by stage how many times longer than the fastest at its best its ranks
// took in the newest step, for the same work.
func (e *estimator) nowTaken() []float64 {
	out := slices.Clone(e.took)
	for stage, x := range e.moved {
		out[stage] *= x
	}
	return out
}
