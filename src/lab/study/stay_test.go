package study

import (
	"math"
	"testing"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/plan/plantest"
	"dynmo/src/plan/search"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// tall makes one layer of a chain cost many times as much.
func tall(t cost.Table, times float64) cost.Table {
	l := len(t.Layers) / 2
	t.Layers[l] = t.Layers[l].WithSeconds(t.Layers[l].Stage().Scale(times))
	return t
}

// silent makes layers send nothing on, so that only moves take time on a link.
func silent(t cost.Table) cost.Table {
	for l := range t.Layers {
		t.Layers[l].Output = 0
	}
	return t
}

// TestStays: a run in which nothing moved says why, with the numbers that it goes by.
func TestStays(t *testing.T) {
	slow := sim.Uniform(0, 1) // a byte a second
	for _, c := range []struct {
		name    string
		table   cost.Table
		steps   int
		network sim.Network
		change  func(*config.Config)
		want    Cause
	}{
		{"static", plantest.Chain(16, 0, 0), 50, sim.Network{}, func(c *config.Config) { c.Balance.Kind = "param" }, Asked},
		{"one step", plantest.Chain(16, 0, 0), 1, sim.Network{}, nil, Brief},
		{"equal layers", plantest.Chain(16, 0, 0), 50, sim.Network{}, nil, Ceiling},
		{"one layer", tall(plantest.Chain(4, 0, 0), 10), 50, sim.Network{}, nil, Grain},
		{"a link of a byte a second", silent(tall(plantest.Chain(16, 0, 0), 3)), 50, slow, nil, Price},
		{"never sure", tall(plantest.Chain(16, 0, 0), 3), 50, sim.Network{}, nil, Uncertainty},
		{"moves", tall(plantest.Chain(16, 0, 0), 3), 50, sim.Network{}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			settings := plantest.Settings(schedule.Kind1F1B, len(c.table.Layers), 4, 8)
			if c.change != nil {
				c.change(&settings)
			}
			o := on(settings, c.network)
			series := cost.Series{{Steps: c.steps, Table: c.table}}
			o.Static = c.want == Uncertainty // of a balancer that is never sure
			run := simulated(t, series, o)
			stay, err := run.Stays(series, o)
			expect.OK(t, err)
			if c.want == "" {
				if times, bytes := run.Moves(); stay != nil || times != 1 || bytes == 0 {
					t.Errorf("%+v after %d moves of %d bytes", stay, times, bytes)
				}
				return
			}
			if stay == nil || stay.Cause != c.want {
				t.Fatalf("%+v, want %s", stay, c.want)
			}
			if c.want == Grain && (stay.Layer != "block.2" || math.Abs(stay.Slowest/stay.Mean-40.0/13) > 1e-9) { // 3, 3, 30 and 3 ms
				t.Errorf("%+v", stay)
			}
			if c.want == Price && (stay.Pays <= float64(c.steps) || stay.Gain < littleGain) {
				t.Errorf("%+v", stay)
			}
		})
	}
}

// TestBaselines: the same work on others' cuts, which fit or say why not; the first
// cuts of a balancer that measures first are those by blocks.
func TestBaselines(t *testing.T) {
	settings, table := chain(4, 3)
	series := cost.Series{{Steps: 10, Table: table}}
	o := Options{Config: settings, Fixed: search.Fixed(settings)}
	first, others, err := baselines(series, o)
	expect.OK(t, err)
	for _, b := range others {
		own := o
		own.Config.Balance.Kind = b.Kind
		want := simulated(t, series, own)
		if b.Err != nil || b.Seconds != want.Seconds || b.Steps() != 10 {
			t.Errorf("%s: %v s in %d steps (%v), want %v s", b.Kind, b.Seconds, b.Steps(), b.Err, want.Seconds)
		}
	}
	if len(others) != 2 || first.Seconds != others[0].Seconds {
		t.Errorf("first %v s, others %+v", first.Seconds, others)
	}
	o.Config.Balance.MemoryLimitBytes = 1_200_000 // too little for what the cuts by blocks leave on a stage
	if _, others, err = baselines(series, o); err != nil || others[0].Err == nil {
		t.Errorf("%v, %+v", err, others)
	}
}
