// Package plantest is for tests: chains of drawn costs, settings and a network, on
// which plans and simulated runs are tried.
package plantest

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// Chain returns the costs of a chain of blocks whose seconds are drawn from
// [1, 1+spread) ms for each of f, i and w.
func Chain(layers int, spread float64, seed uint64) cost.Table {
	draw := random.Keyed(seed, 5)
	t := cost.Table{Clock: "sim"}
	for l := range layers {
		t.Layers = append(t.Layers, cost.Layer{
			Name:    fmt.Sprintf("block.%d", l),
			Forward: 1e-3 * (1 + spread*draw.Float64()), BackwardInput: 1e-3 * (1 + spread*draw.Float64()),
			BackwardWeight: 1e-3 * (1 + spread*draw.Float64()), NonZeros: 100, Output: 1000,
			Bytes: cost.Bytes{Parameters: 400, Gradients: 400, Optimizer: 800, Activations: 100},
		})
	}
	return t
}

// Settings returns settings of a chain with the given number of layers.
func Settings(kind schedule.Kind, layers, stages, microbatches int) config.Config {
	c := config.Default()
	c.Model.Blocks = layers - 2
	c.Schedule.Kind, c.Parallel.Stages, c.Parallel.Microbatches = string(kind), stages, microbatches
	return c
}

// Folding returns settings of 16 layers on 4 stages, with the memory of 1F1B's first stage and
// twice as many microbatches as stages.
func Folding(kind schedule.Kind) config.Config {
	c := Settings(kind, 16, 4, 8)
	c.Balance.Kind, c.Balance.Every = "partition", "1"
	if kind == schedule.KindAuto {
		c.Schedule.InFlight = 4
	}
	return c
}

// Alike returns 16 layers that cost the same, and hold some parameters.
func Alike(c cost.Stage, parameters int64) cost.Table {
	t := Chain(16, 0, 0)
	for l := range t.Layers {
		t.Layers[l] = t.Layers[l].WithSeconds(c.Scale(1e-3))
		t.Layers[l].Bytes.Parameters = parameters
	}
	return t
}

// Link is a network on which messages cost about a tenth of a layer.
var Link = sim.Uniform(5e-5, 2e7)
