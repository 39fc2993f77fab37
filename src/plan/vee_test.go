package plan

import (
	"slices"
	"testing"
	"time"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

func TestVeeTmp(t *testing.T) {
	for _, c := range []cost.Stage{{Forward: 1, Input: 1, Weight: 1}, {Forward: 1, Input: 1, Weight: .5}, {Forward: 1, Input: 1.4, Weight: .9}} {
		for _, p := range []int{2, 4, 8} {
			for _, m := range []int{p / 2, p, 3 * p / 2, 2 * p, 3 * p} {
				vee := partition.Map{Stages: p, Chunks: 2, Vee: true}
				o := schedule.ListOptions{Map: vee, Costs: slices.Repeat([]cost.Stage{c}, 2*p), Microbatches: m, InFlight: slices.Repeat([]int{2 * p}, p)}
				evaluate := func(s schedule.Schedule) float64 {
					if err := s.Check(func(int) int { return 2 * p }); err != nil {
						t.Fatal(err)
					}
					return sim.Makespan(s, o.Costs)
				}
				old := evaluate(fixed(o)[0])
				begin := time.Now()
				bound := sim.LowerBound(vee, o.Costs, m, o.InFlight)
				l := evaluate(fastest(o, bound))
				took1 := time.Since(begin)
				begin = time.Now()
				s, a := Auto(o, evaluate)
				took := time.Since(begin)
				// the same work on a line, memory equal
				line := schedule.ListOptions{Map: partition.Line(p), Costs: slices.Repeat([]cost.Stage{c.Scale(2)}, p), Microbatches: m, InFlight: slices.Repeat([]int{p}, p)}
				_, ll := Auto(line, func(s schedule.Schedule) float64 { return sim.Makespan(s, line.Costs) })
				t.Logf("%v p %d m %d: zbv %.4g lists %.4f auto %.4f of the bound %.5g, %s; line %.4f; %v %v", c, p, m, old/bound, l/bound, a/bound, bound, s.Kind, ll/bound, took1, took)
			}
		}
	}
}
