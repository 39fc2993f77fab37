package schedule

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/partition"
)

var update = flag.Bool("update", false, "rewrite the golden texts")

func TestGolden(t *testing.T) {
	for _, c := range []struct {
		kind                 Kind
		stages, microbatches int
	}{{KindGPipe, 3, 4}, {Kind1F1B, 4, 6}, {Kind1F1B, 4, 2}} {
		name := fmt.Sprintf("%s_p%d_m%d.txt", c.kind, c.stages, c.microbatches)
		t.Run(name, func(t *testing.T) {
			s, err := New(c.kind, c.stages, 1, c.microbatches)
			if err != nil {
				t.Fatal(err)
			}
			got := Format(s.Lists)
			path := filepath.Join("testdata", name)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEveryScheduleIsLegal(t *testing.T) {
	for _, kind := range []Kind{KindGPipe, Kind1F1B} {
		for stages := 1; stages <= 9; stages++ {
			for microbatches := 1; microbatches <= 12; microbatches++ {
				s, err := New(kind, stages, 1, microbatches)
				if err != nil {
					t.Fatal(err)
				}
				inFlight := func(stage int) int {
					if kind == Kind1F1B {
						return min(microbatches, stages-stage)
					}
					return microbatches
				}
				if err := s.Check(inFlight); err != nil {
					t.Errorf("%s, %d stages, %d microbatches: %v", kind, stages, microbatches, err)
				}
			}
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

func TestWithMessages(t *testing.T) {
	list := []Instr{{F, 0, 0}, {I, 0, 0}, {W, 0, 0}}
	for stage, want := range []string{"F0 SF0 RB0 I0 W0\n", "RF0 F0 SF0 RB0 I0 SB0 W0\n", "RF0 F0 I0 SB0 W0\n"} {
		s := Schedule{Map: partition.Line(3), Microbatches: 1, Lists: [][]Instr{list, list, list}}
		if got := Format([][]Instr{s.WithMessages(stage)}); got != want {
			t.Errorf("stage %d: got %q, want %q", stage, got, want)
		}
	}
}
