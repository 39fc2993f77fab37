package search

import (
	"fmt"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
)

// BenchmarkNext is a decision of the balancer by time: cuts, then the schedule.
func BenchmarkNext(b *testing.B) {
	for _, size := range []struct{ layers, stages, microbatches int }{{50, 8, 32}, {53, 24, 96}} {
		for _, kind := range []schedule.Kind{schedule.Kind1F1B, schedule.KindAuto} {
			b.Run(fmt.Sprintf("%s/stages=%d", kind, size.stages), func(b *testing.B) {
				p, err := New(plantest.Settings(kind, size.layers, size.stages, size.microbatches), plantest.Link, nil)
				expect.OK(b, err)
				var tables []cost.Table
				for seed := range uint64(8) {
					tables = append(tables, plantest.Chain(size.layers, 1, seed))
				}
				first, err := p.FirstLayout(tables[0])
				expect.OK(b, err)
				for i := 0; b.Loop(); i++ {
					var next partition.Partition
					if next, err = p.NextCuts(tables[i%len(tables)], first.Cuts, 100); err != nil {
						b.Fatal(err)
					}
					p.Schedule(tables[i%len(tables)], next)
				}
			})
		}
	}
}
