package schedule

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/expect"
	"dynmo/src/partition"
)

func TestGolden(t *testing.T) {
	for _, c := range []struct {
		kind                         Kind
		stages, chunks, microbatches int
	}{
		{KindGPipe, 3, 1, 4},
		{Kind1F1B, 4, 1, 6}, {Kind1F1B, 4, 1, 2},
		{KindInterleaved, 2, 3, 4}, {KindInterleaved, 4, 2, 8}, {KindInterleaved, 4, 2, 10}, {KindInterleaved, 4, 2, 3}, {KindInterleaved, 2, 2, 5},
		{KindZBH1, 4, 1, 6}, {KindZBH1, 4, 1, 2},
		{KindZBH2, 4, 1, 8}, {KindZBH2, 4, 1, 2},
		{KindZBV, 4, 2, 8}, {KindZBV, 4, 2, 2},
		{KindZBInterleaved, 4, 2, 8}, {KindZBInterleaved, 2, 2, 5},
	} {
		name := fmt.Sprintf("%s_p%d_m%d.txt", c.kind, c.stages, c.microbatches)
		t.Run(name, func(t *testing.T) {
			s, err := New(c.kind, c.stages, c.chunks, c.microbatches)
			expect.OK(t, err)
			expect.Golden(t, filepath.Join("testdata", name), Format(s.Lists))
		})
	}
}

// kinds lists every kind that New accepts, with numbers of chunks.
var kinds = []struct {
	kind   Kind
	chunks int
}{{KindGPipe, 1}, {Kind1F1B, 1}, {KindInterleaved, 2}, {KindInterleaved, 3}, {KindZBH1, 1}, {KindZBH2, 1}, {KindZBV, 2}, {KindZBInterleaved, 2}, {KindZBInterleaved, 3}}

// TestEveryScheduleIsLegal: schedules are legal within the cap of their kind. The first stages
// reach the cap if there are enough microbatches.
func TestEveryScheduleIsLegal(t *testing.T) {
	for _, k := range kinds {
		for stages := 1; stages <= 9; stages++ {
			for microbatches := 1; microbatches <= 20; microbatches++ {
				s, err := New(k.kind, stages, k.chunks, microbatches)
				expect.OK(t, err)
				if err := s.Check(s.Cap); err != nil {
					t.Errorf("%s, %d stages, %d microbatches: %v", k.kind, stages, microbatches, err)
				}
				if err := s.Check(func(stage int) int { return s.Cap(stage) - 1 }); err == nil && microbatches >= 2*stages {
					t.Errorf("%s, %d stages, %d microbatches: the cap is not reached", k.kind, stages, microbatches)
				}
			}
		}
	}
}

// TestInterleavedWithoutChunks: with one chunk on a stage zb-interleaved is zb-h1.
func TestInterleavedWithoutChunks(t *testing.T) {
	for stage := range 4 {
		for _, m := range []int{3, 8, 10} {
			if diff := cmp.Diff(zbh1(stage, 4, m), zbInterleaved(stage, 4, 1, m)); diff != "" {
				t.Errorf("stage %d, %d microbatches: %s", stage, m, diff)
			}
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		kind                         Kind
		stages, chunks, microbatches int
		want                         string
	}{
		{KindGPipe, 2, 2, 4, "schedule gpipe: 2 chunks on a stage, want 1"},
		{KindZBH1, 2, 2, 4, "schedule zb-h1: 2 chunks on a stage, want 1"},
		{KindZBV, 2, 1, 4, "schedule zb-v: 1 chunks on a stage, want 2"},
		{KindInterleaved, 2, 1, 4, "schedule interleaved: 1 chunks on a stage, want 2"},
		{KindList, 2, 1, 4, `schedule "list" does not follow from numbers alone`},
		{"2f2b", 2, 1, 4, `schedule "2f2b" does not follow from numbers alone`},
	} {
		if _, err := New(c.kind, c.stages, c.chunks, c.microbatches); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.kind, err, c.want)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		lists [][]Instr
		cap   int
		want  string
	}{
		{"twice", [][]Instr{{{F, 0, 0}, {F, 0, 0}}}, 9, "stage 0: instruction 1, F0: out of order, or twice"},
		{"backward first", [][]Instr{{{B, 0, 0}}}, 9, "out of order"},
		{"weights before inputs", [][]Instr{{{F, 0, 0}, {W, 0, 0}, {I, 0, 0}}}, 9, "W0: out of order"},
		{"forgotten", [][]Instr{{{F, 0, 0}, {B, 0, 0}, {F, 1, 0}}}, 9, "microbatch 1 is not finished"},
		{"weights descend", [][]Instr{{{F, 0, 0}, {F, 1, 0}, {B, 1, 0}, {B, 0, 0}}}, 9, "B1: weights of microbatch 0 come first"},
		{"cap", [][]Instr{{{F, 0, 0}, {F, 1, 0}, {B, 0, 0}, {B, 1, 0}}}, 1, "2 microbatches in flight, the cap is 1"},
		{"unknown microbatch", [][]Instr{{{F, 2, 0}}}, 9, "there are 2 microbatches"},
		{"message", [][]Instr{{{SendForward, 0, 0}}}, 9, "derived"},
		{"deadlock", [][]Instr{
			{{F, 0, 0}, {B, 0, 0}, {F, 1, 0}, {B, 1, 0}},
			{{F, 0, 0}, {F, 1, 0}, {B, 0, 0}, {B, 1, 0}},
		}, 9, "stage 0: instruction 1, B0: deadlock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Schedule{Map: partition.Line(len(c.lists)), Microbatches: 2, Lists: c.lists}
			err := s.Check(func(int) int { return c.cap })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want …%s…", err, c.want)
			}
		})
	}
}

// TestCheckRefusesChunks checks two chunks on one stage, or on two stages in a loop.
func TestCheckRefusesChunks(t *testing.T) {
	seq := func(text string) (list []Instr) {
		for _, word := range strings.Fields(text) {
			in := Instr{Op: Op(strings.IndexByte("FBIW", word[0]))}
			fmt.Sscanf(word[1:], "%d.%d", &in.Microbatch, &in.Chunk)
			list = append(list, in)
		}
		return list
	}
	for _, c := range []struct {
		name, want string
		cap        int
		lists      []string
	}{
		{"sound", "", 2, []string{"F0 F0.1 B0.1 B0"}},
		{"cap counts chunks", "F0.1: 2 microbatches in flight, the cap is 1", 1, []string{"F0 F0.1 B0.1 B0"}},
		{"chunks have their own order of weights", "", 4, []string{"F0 F1 F0.1 F1.1 I0.1 I1.1 I0 I1 W0.1 W0 W1 W1.1"}},
		{"weights descend in a chunk", "W1.1: weights of microbatch 0 come first", 4, []string{"F0 F1 F0.1 F1.1 I0.1 I1.1 W1.1"}},
		{"chunk forgotten", "microbatch 0.1 is not finished", 4, []string{"F0 B0"}},
		{"unknown chunk", "F0.2: a stage has 2 chunks", 4, []string{"F0.2"}},
		{"second chunk first", "stage 0: instruction 0, F0.1: deadlock", 4, []string{"F0.1 F0 B0.1 B0"}},
		{"backward in order of chunks", "stage 0: instruction 2, B0: deadlock", 4, []string{"F0 F0.1 B0 B0.1"}},
		{"round in a circle", "stage 0: instruction 1, B0: deadlock", 4, []string{"F0 B0 F0.1 B0.1", "F0 F0.1 B0.1 B0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Schedule{Map: partition.Map{Stages: len(c.lists), Chunks: 2}}
			for _, list := range c.lists {
				s.Lists = append(s.Lists, seq(list))
				for _, in := range seq(list) {
					s.Microbatches = max(s.Microbatches, in.Microbatch+1)
				}
			}
			err := s.Check(func(int) int { return c.cap })
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestWithMessages(t *testing.T) {
	list := []Instr{{F, 0, 0}, {I, 0, 0}, {W, 0, 0}}
	for stage, want := range []string{"F0 SF0 RB0 I0 W0\n", "RF0 F0 SF0 RB0 I0 SB0 W0\n", "RF0 F0 I0 SB0 W0\n"} {
		s := Schedule{Map: partition.Line(3), Microbatches: 1, Lists: [][]Instr{list, list, list}}
		if got := Format([][]Instr{s.WithMessages(stage)}); got != want {
			t.Errorf("stage %d: got %q, want %q", stage, got, want)
		}
	}
}
