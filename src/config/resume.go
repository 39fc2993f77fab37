package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
)

// Resume returns a line for each setting that differs from the checkpoint's. unknown names further
// settings of the checkpoint that this version does not know. The error joins a line for each
// setting that must not differ. A setting may differ if it has no effect in the checkpoint or in c.
// Samples are drawn by step and by microbatch over all replicas. So replicas and microbatches may
// change if their product does not.
func (c Config) Resume(was Config, unknown []string) (changed []string, err error) {
	for _, key := range unknown {
		changed = append(changed, key+": in the checkpoint, unknown here")
	}
	here, there := settings(&c), settings(&was)
	var refused []error
	for i, s := range here {
		if reflect.DeepEqual(s.value.Interface(), there[i].value.Interface()) || s.only() == "simulate" {
			continue
		}
		_, silentHere := s.silencer(here)
		_, silentThere := there[i].silencer(there)
		if silentHere || silentThere {
			continue
		}
		line := fmt.Sprintf("%s: %s in the checkpoint, %s here", s.name(), shown(there[i].text()), shown(s.text()))
		switch effect := cmp.Or(s.tag.Get("resume"), s.tableTag.Get("resume")); effect {
		case "":
			refused = append(refused, fmt.Errorf("config: %s: may not change on resume", line))
		case "may":
			changed = append(changed, line)
		default:
			changed = append(changed, line+": "+effect)
		}
	}
	if p, q := was.Parallel, c.Parallel; p.Replicas*p.Microbatches != q.Replicas*q.Microbatches {
		refused = append(refused, fmt.Errorf("config: parallel.replicas x parallel.microbatches: %d x %d in the checkpoint, %d x %d here: the product may not change on resume, steps would have other samples",
			p.Replicas, p.Microbatches, q.Replicas, q.Microbatches))
	}
	return changed, errors.Join(refused...)
}
