package policy

import (
	"testing"

	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
)

// BenchmarkDecide is a whole decision on 24 stages with 96 microbatches by auto, which
// weighs both maps, every time on other costs.
func BenchmarkDecide(b *testing.B) {
	c := plantest.Settings(schedule.KindAuto, 53, 24, 96)
	c.Balance.Every = "1"
	a := ask(b, c, plantest.Link, plantest.Chain(53, 1, 0), Options{})
	for i := 0; b.Loop(); i++ {
		m := estimated(plantest.Chain(53, 1, uint64(i%8)), 0.001)
		m.Estimate.Stage = make([]float64, 24)
		for l, stage := range a.now.Owners() {
			m.Estimate.On[l] = stage
		}
		a.shown(m)
	}
}
