package search

import (
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/partition"
)

// TestBehind: masters and moments may follow a move if the layouts allow it (see
// layout.TestOptimizerCanFollow) and the stage that gives layers away has memory for them beside its
// others.
func TestBehind(t *testing.T) {
	planned := func(kind string, limit int64) (*Problem, layout.Layout) {
		c := config.Default()
		c.Model.Blocks, c.Parallel.Stages, c.Dynamic.Kind = 8, 2, kind
		p, err := Configured(c)
		expect.OK(t, err)
		p.limit = limit
		l, err := begin(p, Dense(c)).FirstLayout()
		expect.OK(t, err)
		return p, l
	}
	p, present := planned("none", 0)
	dense := Dense(p.Config)
	next := present.With(partition.Partition{0, present.Cuts[1] - 2, present.Cuts[2]}, present.Schedule)
	most := int64(0) // of stages with the layers that leave
	for stage, bytes := range p.Step(dense, present).Bytes(next) {
		for _, l := range present.Owners().Moved(next.Owners()) {
			if present.Owners()[l] == stage {
				bytes += dense.Layers[l].Bytes.Static()
			}
		}
		most = max(most, bytes)
	}
	for _, c := range []struct {
		kind  string
		limit int64
		want  bool
	}{{"none", 0, true}, {"prune", 0, false}, {"none", most, true}, {"none", most - 1, false}} {
		p, present := planned(c.kind, c.limit)
		if got := p.Step(dense, present).OptimizerCanFollow(next); got != c.want {
			t.Errorf("%s, limit %d: %v, want %v", c.kind, c.limit, got, c.want)
		}
	}
}
