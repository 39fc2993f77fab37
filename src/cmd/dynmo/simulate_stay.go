package main

import (
	"cmp"
	"fmt"

	"dynmo/src/study"
)

// simStay is why no layer moved.
type simStay struct {
	Cause study.Cause `json:"cause"`
	Why   string      `json:"why"`
}

// stayed says in a sentence why no layer moved; nil if some did.
func stayed(s *study.Stay, o study.Options) *simStay {
	if s == nil {
		return nil
	}
	gain := fmt.Sprintf("%.1f %%", 100*s.Gain)
	why := ""
	switch s.Cause {
	case study.Asked:
		why = fmt.Sprintf("balance.kind = %s never moves layers", o.Config.Balance.Kind)
	case study.Brief:
		why = "the run has one step, and layers move after a step"
	case study.Grain:
		why = fmt.Sprintf("grain: the slowest stage of the best cuts takes %s of a microbatch, the mean %s, %s alone %s; only finer layers could be shared out: use fewer stages, model.grain = half or more model.head_shards (see dynmo plan)",
			duration(s.Slowest), duration(s.Mean), cmp.Or(s.Layer, "one layer"), duration(s.Seconds))
	case study.Ceiling:
		why = fmt.Sprintf("ceiling: the cuts are within %s of the best that were found", gain)
	case study.Price:
		why = fmt.Sprintf("price: from step %d on the best cuts would save %s; to move there takes %s, what they save in %.0f steps", s.Step, gain, duration(s.Moving), s.Pays)
	case study.Uncertainty:
		why = fmt.Sprintf("uncertainty: from step %d on the best cuts would save %s, in %d steps; to the balancer that was not sure or not lasting", s.Step, gain, s.Steps)
	}
	return &simStay{s.Cause, why}
}
