package mod

import (
	"math"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
)

// routedTokens are the tokens at a routed block (see Counts).
var routedTokens = dynamic.Counts{Name: routedCounts, Values: []string{"there", "taken", "right", "router's loss", "predictor's loss"}}

// counts returns routedTokens with its charts.
func counts(c config.Config) []dynamic.Counts {
	by := "the router's sigmoid above 1/2"
	if config.Of[options](c).Route == "predictor" {
		by = "the predictor"
	}
	all := routedTokens
	all.Charts = []dynamic.Chart{
		{Title: "tokens taken", Unit: "%", About: "by routed blocks, of the tokens that come to them", FromZero: true,
			Of: func(v dynamic.Values, _ dynamic.Step) float64 { return 100 * v.Ratio("taken", "there") }},
		{Title: "predictor accuracy", Unit: "%", About: "tokens for which " + by + " predicts correctly whether they are among the first of their sequence",
			Of: func(v dynamic.Values, _ dynamic.Step) float64 { return 100 * v.Ratio("right", "there") }},
	}
	all.Work = func(v dynamic.Values, tokens float64) dynamic.Work {
		return dynamic.Work{Share: v.Get("taken") / tokens}
	}
	return []dynamic.Counts{all}
}

// sentence says which share of their tokens routed blocks take.
func sentence(s dynamic.Seen) string {
	share := s.Sum(routedTokens.Name, "taken") / s.Sum(routedTokens.Name, "there")
	if math.IsNaN(share) {
		return ""
	}
	return "routed blocks take " + dynamic.Percent(share) + " of their tokens"
}

// routing reports the share of tokens that routed blocks take when it has changed by a quarter
// since its last report: the cost of the blocks has then changed. It changes nothing.
type routing struct {
	told         float64      // share of the tokens taken, at the last report
	share, right dynamic.Mean // of the tokens that are there: taken, predicted correctly
}

// Before tells the shares of the last steps.
func (r *routing) Before(int, dynamic.Target) (dynamic.Change, error) {
	if !dynamic.IsNews(r.told, r.share.Value) {
		return dynamic.Change{}, nil
	}
	r.told = r.share.Value
	return dynamic.Change{Kind: "mod", Costs: true, Detail: map[string]float64{"taken": r.share.Value, "right": r.right.Value}}, nil
}

// After counts the tokens of all routed blocks.
func (r *routing) After(_ int, counts []cost.CountSum) error {
	var there, taken, right float64
	for _, c := range counts {
		if c.Name == routedTokens.Name {
			v := routedTokens.Read(c.Values)
			there, taken, right = there+v.Get("there"), taken+v.Get("taken"), right+v.Get("right")
		}
	}
	if there > 0 {
		r.share.Add(taken / there)
		r.right.Add(right / there)
	}
	return nil
}
