package schedule

import (
	"fmt"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/partition"
)

// TestForward: every stage does every pass once. Microbatches follow each other as closely as the
// map allows, and no stages wait for each other in a circle.
func TestForward(t *testing.T) {
	for _, c := range []struct {
		m            partition.Map
		microbatches int
		text         string
	}{
		{partition.Line(3), 3, "F0 F1 F2\nF0 F1 F2\nF0 F1 F2\n"},
		{partition.Map{Stages: 2, Chunks: 2}, 4, "F0 F1 F0.1 F1.1 F2 F3 F2.1 F3.1\nF0 F1 F0.1 F1.1 F2 F3 F2.1 F3.1\n"},
		{partition.Map{Stages: 2, Chunks: 2, Vee: true}, 3, "F0 F1 F0.1 F2 F1.1 F2.1\nF0 F0.1 F1 F1.1 F2 F2.1\n"},
		{partition.Map{Stages: 1, Chunks: 3}, 2, "F0 F0.1 F0.2 F1 F1.1 F1.2\n"},
		{partition.Map{Stages: 2, Chunks: 2}, 1, "F0 F0.1\nF0 F0.1\n"},
	} {
		if got := Format(Forward(c.m, c.microbatches).Lists); got != c.text {
			t.Errorf("%+v: order\n%swant\n%s", c.m, got, c.text)
		}
	}
	for stages := 1; stages <= 5; stages++ {
		for chunks := 1; chunks <= 4; chunks++ {
			for _, vee := range []bool{false, true} {
				for microbatches := 1; microbatches <= 12; microbatches++ {
					m := partition.Map{Stages: stages, Chunks: chunks, Vee: vee}
					expect.OK(t, forwardRuns(Forward(m, microbatches)))
				}
			}
		}
	}
}

// forwardRuns executes a step of forward passes. Every virtual stage has one buffer for its output.
// The buffer is free once the next virtual stage has done its pass.
func forwardRuns(s Schedule) error {
	n, run := s.Map.Virtual(), s.dryRun()
	held := func(v int, in Instr) bool {
		m := in.Microbatch
		return v < n-1 && m > 0 && !run.forward[(v+1)*s.Microbatches+m-1]
	}
	for run.pass(held) {
	}
	for stage, list := range s.Lists {
		if len(list) != s.Map.Chunks*s.Microbatches || run.next[stage] < len(list) {
			return fmt.Errorf("%+v, %d microbatches: stage %d does %d of %d passes of\n%s", s.Map, s.Microbatches, stage, run.next[stage], len(list), Format(s.Lists))
		}
	}
	for i, done := range run.forward {
		if !done {
			return fmt.Errorf("%+v, %d microbatches: pass %d is missing", s.Map, s.Microbatches, i)
		}
	}
	return nil
}

// TestSkipFrozen: frozen virtual stages do forwards alone, and neither receive nor send gradients.
// The first that trains sends no gradients.
func TestSkipFrozen(t *testing.T) {
	for _, c := range []struct {
		name           string
		kind           Kind
		stages, chunks int
		first          int
		text, messages string // messages: of stage 1
	}{
		{"all train", Kind1F1B, 2, 1, 0, "F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2\n", "RF0 F0 B0 SB0 RF1 F1 B1 SB1 RF2 F2 B2 SB2\n"},
		{"first stage is frozen", Kind1F1B, 2, 1, 1, "F0 F1 F2\nF0 B0 F1 B1 F2 B2\n", "RF0 F0 B0 RF1 F1 B1 RF2 F2 B2\n"},
		{"nothing trains", Kind1F1B, 2, 1, 2, "F0 F1 F2\nF0 F1 F2\n", "RF0 F0 RF1 F1 RF2 F2\n"},
		{"apart", KindZBH1, 2, 1, 1, "F0 F1 F2\nF0 I0 F1 I1 W0 F2 I2 W1 W2\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := New(c.kind, c.stages, c.chunks, 3)
			if err != nil {
				t.Fatal(err)
			}
			whole := Format(s.Lists)
			got := s.SkipFrozen(c.first)
			if text := Format(got.Lists); text != c.text && c.kind == Kind1F1B {
				t.Errorf("lists\n%swant\n%s", text, c.text)
			}
			for stage, list := range got.Lists {
				for _, in := range got.WithMessages(stage) {
					if v := s.Map.Place(stage, in.Chunk); in.Op != F && in.Op != RecvForward && in.Op != SendForward && (v < c.first || v == c.first && in.Op == SendBackward) && c.first > 0 {
						t.Errorf("virtual stage %d does %v of %v", v, in, list)
					}
				}
			}
			if c.messages != "" {
				if text := Format([][]Instr{got.WithMessages(1)}); text != c.messages {
					t.Errorf("with messages %swant %s", text, c.messages)
				}
			}
			if Format(s.Lists) != whole {
				t.Error("the schedule itself has changed")
			}
		})
	}
}
