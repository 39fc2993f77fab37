package policy

import (
	"testing"

	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/plan/plantest"
	"dynmo/src/plan/search"
	"dynmo/src/schedule"
)

// BenchmarkDecide is a whole decision on 24 stages with 96 microbatches by auto, which
// weighs both maps, every time on other costs.
func BenchmarkDecide(b *testing.B) {
	p, err := search.New(plantest.Settings(schedule.KindAuto, 53, 24, 96), plantest.Link, nil)
	expect.OK(b, err)
	c := p.Config
	c.Balance.Every = "1"
	p, err = search.New(c, plantest.Link, nil)
	expect.OK(b, err)
	balancer, err := New(p, Options{})
	expect.OK(b, err)
	now, err := p.FirstLayout(plantest.Chain(53, 1, 0))
	expect.OK(b, err)
	for i := 0; b.Loop(); i++ {
		now = decided(b, balancer, now, uint64(i%8))
	}
}

// decided returns the layout after a decision on the costs of a seed.
func decided(b *testing.B, balancer Balancer, now layout.Layout, seed uint64) layout.Layout {
	m := estimated(plantest.Chain(53, 1, seed), 0.001)
	m.Estimate.Stage = make([]float64, 24)
	for l, stage := range now.Owners() {
		m.Estimate.On[l] = stage
	}
	next, _, err := balancer.Decide(m, now)
	if err != nil {
		b.Fatal(err)
	}
	return next
}
