package contest

import "slices"

// Summary is what ratios say together.
type Summary struct {
	Where     string // which steps: their cap, or "all"
	Steps     int
	Open      int     // of them: those whose optimum is not known
	Mean, Max float64 // of the ratios
	Worst     Problem // where the largest was
}

// Summarize returns the summaries of ratios at each of some caps, and of all, which is
// last. Of no ratios there is none.
func Summarize(ratios []Ratio, caps []string) []Summary {
	var list []Summary
	for _, where := range append(slices.Clone(caps), "all") {
		s := Summary{Where: where}
		for _, r := range ratios {
			if where != "all" && r.capName() != where {
				continue
			}
			s.Steps++
			s.Mean += r.Over
			if r.Open {
				s.Open++
			}
			if r.Over > s.Max {
				s.Max, s.Worst = r.Over, r.Problem
			}
		}
		if s.Steps > 0 {
			s.Mean /= float64(s.Steps)
			list = append(list, s)
		}
	}
	return list
}

// Caps are the caps of instances.
var Caps = []string{"P/2", "P", "2P-1", "V"}

// capName returns which of Caps a problem has.
func (p Problem) capName() string {
	switch stages := len(p.Costs); {
	case p.Vee:
		return Caps[3]
	case p.InFlight <= stages/2:
		return Caps[0]
	case p.InFlight <= stages:
		return Caps[1]
	}
	return Caps[2]
}
