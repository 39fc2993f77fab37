package exit

import (
	"math"

	"dynmo/src/config"
	"dynmo/src/dynamic"
)

// left are the tokens at an exit, around those that would have left with other thresholds (see
// Counts and Around).
var (
	left = dynamic.Counts{
		Name: Counts, Values: []string{"entered", "left", "right", "probes", "probes right", "probes' losses", "losses"},
		Charts: []dynamic.Chart{
			{Title: "tokens that leave", Unit: "%", About: "of all tokens of the step, by exit", FromZero: true,
				Of: func(v dynamic.Values, s dynamic.Step) float64 { return 100 * v.Get("left") / s.Tokens }},
			{Title: "right when they leave", Unit: "%", About: "of the tokens that leave at an exit, those whose target is the likeliest there", FromZero: true,
				Of: func(v dynamic.Values, _ dynamic.Step) float64 { return 100 * v.Ratio("right", "left") }},
			{Title: "loss where tokens leave", Unit: "nats", About: "mean loss of the tokens that leave at an exit, there", FromZero: true,
				Of: func(v dynamic.Values, _ dynamic.Step) float64 { return v.Ratio("losses", "left") / 1000 }},
			{Title: "loss of those that go on", Unit: "nats", About: "mean loss at an exit of probes among the tokens that go on", FromZero: true,
				Of: func(v dynamic.Values, _ dynamic.Step) float64 { return v.Ratio("probes' losses", "probes") / 1000 }},
		},
		Work: func(v dynamic.Values, tokens float64) dynamic.Work {
			return dynamic.Work{Share: math.NaN(), Left: v.Get("left") / tokens}
		},
	}
	around = dynamic.Counts{
		Name: aroundCounts, Values: []string{"threshold"},
		Charts: []dynamic.Chart{{Title: "thresholds of exits", About: "confidence above which a token leaves, by exit", FromZero: true,
			Of: func(v dynamic.Values, s dynamic.Step) float64 {
				return v.Get("threshold") / thresholdUnit / s.Microbatches
			}}},
	}
)

func counts(config.Config) []dynamic.Counts { return []dynamic.Counts{left, around} }

// sentence says how many tokens leave.
func sentence(s dynamic.Seen) string {
	gone := s.Sum(left.Name, "left")
	if math.IsNaN(gone) {
		gone = 0
	}
	return dynamic.Percent(gone/s.Tokens) + " of the tokens leave early"
}
