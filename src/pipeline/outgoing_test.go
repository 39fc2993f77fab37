package pipeline

import (
	"slices"
	"testing"

	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// TestOutgoing: schedules whose stages work in one order need two buffers, and
// orders that cross need more.
func TestOutgoing(t *testing.T) {
	for _, c := range []struct {
		kind                         schedule.Kind
		stages, chunks, microbatches int
	}{
		{schedule.KindGPipe, 4, 1, 12}, {schedule.Kind1F1B, 8, 1, 24}, {schedule.KindInterleaved, 4, 3, 16},
		{schedule.KindZBH1, 8, 1, 24}, {schedule.KindZBH2, 8, 1, 24}, {schedule.KindZBV, 8, 2, 24},
	} {
		s, err := schedule.New(c.kind, c.stages, c.chunks, c.microbatches)
		if err != nil {
			t.Fatal(err)
		}
		if got := outgoing(s, s.Peaks()); slices.Max(got) > atLeast {
			t.Errorf("%s: %v buffers, want %d each", c.kind, got, atLeast)
		}
	}
	var up, down []schedule.Instr
	for m := range 6 {
		up, down = append(up, schedule.Instr{Op: schedule.F, Microbatch: m}), append(down, schedule.Instr{Op: schedule.F, Microbatch: m})
	}
	for m := range 6 {
		up, down = append(up, schedule.Instr{Op: schedule.I, Microbatch: m}), append(down, schedule.Instr{Op: schedule.I, Microbatch: (m + 5) % 6})
		if m > 0 {
			down = append(down, schedule.Instr{Op: schedule.W, Microbatch: m - 1})
		}
	}
	for m := range 6 {
		up = append(up, schedule.Instr{Op: schedule.W, Microbatch: m})
	}
	down = append(down, schedule.Instr{Op: schedule.W, Microbatch: 5})
	s := schedule.Schedule{Map: partition.Line(2), Microbatches: 6, Lists: [][]schedule.Instr{down, up}}
	if err := s.Check(func(int) int { return 6 }); err != nil {
		t.Fatal(err)
	}
	// Stage 0 takes 5, 0, 1, 2, 3, 4 and has three buffers; stage 1 gives back 0
	// to 5 in order. 2, 3 and 4 lie in buffers until 5, for which one more is
	// needed, has been taken.
	if got := outgoing(s, s.Peaks())[1]; got != 4 {
		t.Errorf("%d buffers where orders cross, want 4", got)
	}
}
