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
	KindAuto          Kind = "auto" // the best of several for given costs; it names no schedule
	KindFile          Kind = "file" // read by ParseCSV
)

// New returns a schedule that stages, chunks and microbatches determine. For interleaved and
// zb-interleaved chunks is 2 or more. It is 2 for zb-v, and 1 for the other kinds. Other values of
// chunks and kinds that need more data are errors. With fewer than 2·stages microbatches, zb-v is
// ZBV's order or a list, whichever is shorter for chunks of equal cost.
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

// Cap returns the most microbatches of a stage's chunks between F and W that the schedule's kind
// allows.
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
