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
	told, share, right float64 // shares of the tokens that are there: taken when last told, taken, foretold rightly
	steps              float64 // that share and right are about the mean of
}

// lately is the most steps that shares are about the mean of: those of one are noise.
const lately = 16

// news is how many times more or fewer tokens are told.
const news = 1.25

// Before tells the shares of the last steps.
func (r *Routing) Before(int, Target) (Change, error) {
	if r.share <= r.told*news && r.told <= r.share*news {
		return Change{}, nil
	}
	r.told = r.share
	return Change{Kind: "mod", Costs: true, Detail: map[string]float64{"taken": r.share, "right": r.right}}, nil
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
		r.steps = min(r.steps+1, lately)
		r.share += (float64(taken)/float64(there) - r.share) / r.steps
		r.right += (float64(right)/float64(there) - r.right) / r.steps
	}
	return nil
}
