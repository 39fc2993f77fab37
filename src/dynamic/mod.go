package dynamic

import (
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/model"
)

// A routed block decides within itself which tokens it takes (see model.Depths). As many in
// every step are no news; as many as a predictor takes are.
func init() {
	register("mod", func(c config.Config) Kind {
		if c.Mod.Route == "predictor" {
			return &Routing{}
		}
		return none{}
	})
}

// Routing tells how many tokens routed blocks take, when it is a quarter more or fewer
// than was told last: what the blocks cost has changed. It changes nothing.
type Routing struct {
	told         float64 // share of the tokens that were taken when that was told last
	share, right mean    // of the tokens that are there: taken, foretold rightly
}

// Before tells the shares of the last steps.
func (r *Routing) Before(int, Target) (Change, error) {
	if !isNews(r.told, r.share.value) {
		return Change{}, nil
	}
	r.told = r.share.value
	return Change{Kind: "mod", Costs: true, Detail: map[string]float64{"taken": r.share.value, "right": r.right.value}}, nil
}

// After counts the tokens of all routed blocks.
func (r *Routing) After(_ int, m cost.Measurement) error {
	var there, taken, right int64
	for _, c := range m.Counts {
		if c.Name == model.RoutingCounts {
			there, taken, right = there+c.Values[0], taken+c.Values[1], right+c.Values[2]
		}
	}
	if there > 0 {
		r.share.add(float64(taken) / float64(there))
		r.right.add(float64(right) / float64(there))
	}
	return nil
}
