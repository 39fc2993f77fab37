// Package attention is causal attention within hash buckets (Pagliardini et al. 2023; paper,
// section 2.2). What queries see follows from the buckets in every pass: nothing is decided
// between steps.
package attention

import (
	"fmt"
	"math"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/model"
)

// Kind registers sparse attention.
var Kind = dynamic.Registration{
	Settings: settings,
	Extension: func(c config.Config) model.Extension {
		o := config.Of[options](c)
		return Buckets{Count: o.Buckets, SharedKeys: o.Keys == "shared"}
	},
	Forcing: forcing,
	Workload: dynamic.Making{Every: 1, Of: func(c config.Config) dynamic.Workload {
		return workload(config.Of[simulated](c))
	}},
	Counts: func(config.Config) []dynamic.Counts {
		return []dynamic.Counts{{Name: pairCounts, Values: []string{"computed", "causal"}, Work: func(v dynamic.Values, _ float64) dynamic.Work {
			return dynamic.Work{Scores: true, Share: v.Get("computed") / v.Get("causal")}
		}}}
	},
	Sentence: func(s dynamic.Seen) string {
		if math.IsNaN(s.Scores) {
			return ""
		}
		return dynamic.Percent(s.Scores) + " of the causal scores of attention are computed"
	},
	Changes: map[string]func(map[string]float64) string{forcedChange: tellForced},
	Exported: func(c config.Config) []string {
		if o := config.Of[options](c); o.Buckets > 1 {
			return []string{fmt.Sprintf("attention.buckets = %d: others let a query see all keys", o.Buckets)}
		}
		return nil
	},
	Holds: func(c config.Config) string {
		o := config.Of[options](c)
		return fmt.Sprintf("attention.buckets=%d attention.keys=%s", o.Buckets, o.Keys)
	},
}
