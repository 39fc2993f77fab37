package search

import (
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/plan/plantest"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// exitRows returns what microbatches make of a chain of 26 layers: behind three of them a
// quarter of the tokens leaves, by microbatch more or less, and is short for all later
// layers.
func exitRows(microbatches int, keys ...uint64) [][]float64 {
	draw := random.Keyed(keys...)
	rows := make([][]float64, 26)
	left := make([]float64, microbatches)
	for m := range left {
		left[m] = 1
	}
	for l := range rows {
		for m := range left {
			if l == 6 || l == 12 || l == 18 {
				left[m] = max(0, left[m]-0.25*(1+0.3*draw.NormFloat64()))
			}
			rows[l] = append(rows[l], left[m])
		}
	}
	return rows
}

// TestMicrobatchesDecide: where tokens leave by microbatch, cuts made for the microbatches are
// better than cuts made for their mean. They are better on these microbatches, and on others drawn
// from the same distribution.
func TestMicrobatchesDecide(t *testing.T) {
	const microbatches, chains, others = 16, 6, 4
	p := planner(t, plantest.Settings(schedule.Kind1F1B, 26, 8, microbatches), sim.Network{})
	known, unknown := 0.0, 0.0 // times as long, by the mean alone
	for chain := range uint64(chains) {
		with := func(draw uint64) cost.Table {
			table := plantest.Chain(26, 0.3, chain)
			table.Scale = exitRows(microbatches, chain, draw)
			return cost.Phase{Table: table}.Mean()
		}
		table := with(1)
		cuts, err := bestCuts(p, table)
		expect.OK(t, err)
		mean := table
		mean.Scale = nil
		byMean, err := bestCuts(p, mean)
		expect.OK(t, err)
		known += cutsSeconds(p, table, byMean) / cutsSeconds(p, table, cuts) / chains
		took, tookByMean := 0.0, 0.0
		for draw := range uint64(others) {
			other := with(2 + draw)
			took, tookByMean = took+cutsSeconds(p, other, cuts), tookByMean+cutsSeconds(p, other, byMean)
		}
		unknown += tookByMean / took / chains
	}
	if known < 1.01 || unknown < 1.01 {
		t.Errorf("by the mean alone steps take %.3f times as long, those with other microbatches %.3f times; want 1.01", known, unknown)
	}
}
