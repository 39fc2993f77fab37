package mod

import (
	"dynmo/src/cost"
	"dynmo/src/dynamic"
)

// routing tells how many tokens routed blocks take, when it is a quarter more or fewer
// than was told last: what the blocks cost has changed. It changes nothing.
type routing struct {
	told         float64      // share of the tokens that were taken when that was told last
	share, right dynamic.Mean // of the tokens that are there: taken, foretold rightly
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
func (r *routing) After(_ int, m cost.Measurement) error {
	var there, taken, right int64
	for _, c := range m.Counts {
		if c.Name == Counts {
			there, taken, right = there+c.Values[0], taken+c.Values[1], right+c.Values[2]
		}
	}
	if there > 0 {
		r.share.Add(float64(taken) / float64(there))
		r.right.Add(float64(right) / float64(there))
	}
	return nil
}
