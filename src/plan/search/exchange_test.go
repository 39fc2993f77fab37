package search

import (
	"math"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/sim"
)

// TestExchangesTakeTime: a step of layers whose replicas exchange rows is longer by the rounds.
func TestExchangesTakeTime(t *testing.T) {
	c, err := config.Load("", []string{"model.blocks=1", "parallel.stages=1", "parallel.replicas=4", "parallel.microbatches=3", "schedule.kind=gpipe"})
	expect.OK(t, err)
	p, err := New(c, sim.Uniform(1e-3, 1e6), nil)
	expect.OK(t, err)
	table := cost.Table{Layers: []cost.Layer{{}, {Forward: 1, BackwardInput: 1, BackwardWeight: 1}, {}}}
	cuts := partition.Partition{0, 3}
	plain := begin(p, table).Seconds(begin(p, table).Layout(cuts))
	table.Layers[1].Rows = 1e6
	got := begin(p, table).Seconds(begin(p, table).Layout(cuts)) - plain
	if want := 3 * (5*1e-3 + 4*0.75); math.Abs(got-want) > 1e-9 {
		t.Errorf("%v seconds more, want %v: of three microbatches, five rounds and four times three quarters of the rows", got, want)
	}
}
