// Package freeze ends the training of the first layers of the chain: once they have stopped
// changing (Egeria, Wang et al. 2022), or at one step.
package freeze

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// Kind registers freezing.
var Kind = dynamic.Registration{
	Settings: settings,
	New: func(c config.Config) dynamic.Kind {
		f := config.Of[options](c)
		if f.When == "plasticity" {
			return &plasticity{options: f, microbatches: c.Parallel.Microbatches}
		}
		return atStep{Layers: f.Layers, Step: f.Step}
	},
	Forcing: forcing,
	Workload: dynamic.Making{Every: 50, Of: func(c config.Config) dynamic.Workload {
		s := config.Of[simulated](c)
		return workload{s.Frozen, s.Thaws}
	}},
	Memory:   references,
	Sentence: func(s dynamic.Seen) string { return s.Froze },
	Words: func(s dynamic.Seen) []string {
		return []string{fmt.Sprintf("frozen layers: %d of %d", s.Frozen, s.Layers)}
	},
	Changes: map[string]func(map[string]float64) string{
		"freeze": func(of map[string]float64) string {
			all := ""
			if of["of_all"] > 0 {
				all = fmt.Sprintf(" of %.0f", of["of_all"])
			}
			return "froze " + firstLayers(of["layers"]) + all
		},
		forcedSet: tellSet,
		"thaw": func(of map[string]float64) string {
			return "unfroze " + firstLayers(of["layers"])
		},
	},
	Counts: func(config.Config) []dynamic.Counts {
		return []dynamic.Counts{{Name: plasticityCount, Values: []string{"plasticity"}}, {Name: referenceCount, Values: []string{"nanoseconds"}}}
	},
	Evaluated: evaluated,
}

// firstLayers names the first n layers of the chain.
func firstLayers(n float64) string {
	if n == 1 {
		return "layer 0"
	}
	return fmt.Sprintf("layers 0 to %.0f", n-1)
}

// references returns the bytes of the references that layers are compared with, where the
// memory of the device is that of the host. They come after the first steps.
func references(c config.Config, dtype tensor.DType) []int64 {
	if !config.Of[options](c).isByPlasticity(c) || c.Device.Kind != "cpu" {
		return nil
	}
	return model.ReferenceBytes(model.FromConfig(c), dtype)
}
