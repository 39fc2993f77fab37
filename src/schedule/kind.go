package schedule

import (
	"fmt"

	"dynmo/src/partition"
)

// Kind names a schedule.
type Kind string

const (
	KindGPipe         Kind = "gpipe"
	Kind1F1B          Kind = "1f1b"
	KindInterleaved   Kind = "interleaved"
	KindZBH1          Kind = "zb-h1"
	KindZBH2          Kind = "zb-h2"
	KindZBV           Kind = "zb-v"
	KindZBInterleaved Kind = "zb-interleaved"
	KindList          Kind = "list" // made from costs, by List
	KindAuto          Kind = "auto" // the best of several for given costs; no schedule itself
	KindFile          Kind = "file" // read by ParseCSV
)

// New returns a schedule that follows from numbers alone. Only interleaved
// and zb-interleaved have a choice of chunks, 2 or more; zb-v has 2 chunks, the others
// 1. Everything else is an error, and so is a kind that does not follow from numbers
// alone. Of zb-v with fewer than 2·stages microbatches it is ZBV's order or a list,
// whichever is shorter where all chunks cost the same.
func New(kind Kind, stages, chunks, microbatches int) (Schedule, error) {
	s := Schedule{Kind: kind, Map: partition.Map{Stages: stages, Chunks: chunks, Vee: kind == KindZBV}, Microbatches: microbatches}
	wanted := 1
	var list func(stage int) []Instr
	switch kind {
	case KindGPipe:
		list = func(int) []Instr { return gPipe(microbatches) }
	case Kind1F1B:
		list = func(stage int) []Instr { return oneFOneB(stage, stages, microbatches) }
	case KindInterleaved:
		wanted = max(2, chunks)
		list = func(stage int) []Instr { return interleaved(stage, stages, chunks, microbatches) }
	case KindZBH1:
		list = func(stage int) []Instr { return zbh1(stage, stages, microbatches) }
	case KindZBH2:
		list = func(stage int) []Instr { return zbh2(stage, stages, microbatches) }
	case KindZBV:
		wanted = 2
		list = func(stage int) []Instr { return ZBV(stage, stages, microbatches) }
	case KindZBInterleaved:
		wanted = max(2, chunks)
		list = func(stage int) []Instr { return zbInterleaved(stage, stages, chunks, microbatches) }
	default:
		return s, fmt.Errorf("schedule %q does not follow from numbers alone", kind)
	}
	if chunks != wanted {
		return s, fmt.Errorf("schedule %s: %d chunks on a stage, want %d", kind, chunks, wanted)
	}
	for stage := range stages {
		s.Lists = append(s.Lists, list(stage))
	}
	if kind == KindZBV && microbatches < 2*stages {
		s = filled(s)
	}
	return s, nil
}

// Cap returns how many microbatches of its chunks a stage has at most between
// their F and their W, as its kind promises.
func (s Schedule) Cap(stage int) int {
	stages, all := s.Map.Stages, s.Map.Chunks*s.Microbatches
	switch s.Kind {
	case Kind1F1B:
		return min(all, stages-stage)
	case KindInterleaved:
		return min(all, interleavedWarmup(stage, stages, s.Map.Chunks, s.Microbatches)+1)
	case KindZBH1:
		return min(all, stages)
	case KindZBH2:
		return min(all, 2*stages-1)
	case KindZBV:
		return min(all, 2*stages)
	case KindZBInterleaved:
		return min(all, stages+(s.Map.Chunks-1)*groups(stages, s.Microbatches).largest())
	}
	return all
}
