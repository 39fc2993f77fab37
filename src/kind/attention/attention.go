// Package attention is causal attention within hash buckets (Pagliardini et al. 2023; paper,
// section 2.2). What queries see follows from the buckets in every pass: nothing is decided
// between steps.
package attention

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/model"
)

// Kind registers sparse attention.
var Kind = dynamic.Registration{
	Settings: settings,
	Extension: func(c config.Config) model.Extension {
		return Buckets{Count: config.Of[Settings](c).Buckets}
	},
	Workload: dynamic.Making{Every: 1, Of: func(c config.Config) dynamic.Workload {
		s := config.Of[simulated](c)
		return workload{s.Sparsest, s.Densest, s.Noise}
	}},
	Holds: func(c config.Config) string {
		return fmt.Sprintf("attention.buckets=%d", config.Of[Settings](c).Buckets)
	},
}
