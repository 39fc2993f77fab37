package trainerlogs

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// plan writes the lines of zero-bubble for `each` ranks on each stage, in microseconds. W takes four tenths
// of the backward.
func plan(t *testing.T, r Run, each int) string {
	t.Helper()
	s, err := r.shape()
	expect.OK(t, err)
	var f, b, w []string
	for stage := range s.Stages {
		for range each {
			var rows [passes][]string
			for chunk := range s.Chunks {
				x := [2]float64{}
				for k, n := range s.virtual[s.Place(stage, chunk)] {
					x[0], x[1] = x[0]+float64(n)*known[k][0], x[1]+float64(n)*known[k][1]
				}
				for pass, seconds := range [passes]float64{x[0], 0.6 * x[1], 0.4 * x[1]} {
					rows[pass] = append(rows[pass], fmt.Sprint(int(1e6*seconds+0.5)))
				}
			}
			row := func(pass int) string {
				if s.Chunks == 1 {
					return "(" + rows[pass][0] + ",)"
				}
				return "(" + strings.Join(rows[pass], ", ") + ")"
			}
			f, b, w = append(f, row(0)), append(b, row(1)), append(w, row(2))
		}
	}
	list := func(x []string) string { return "(" + strings.Join(x, ", ") + ")" }
	return fmt.Sprintf("rank 2 Performing ILP with: f=%s,\n b=%s,\n w=%s,\n c=900,\n f_mem=%s,\n mem_limit=(1, 2)\n", list(f), list(b), list(w), list(f))
}

// start is what every run prints before it has measured anything.
const start = "rank 2 Performing ILP with: f=([1000], [1000], [1000], [1000]),\n b=([1000], [1000], [1000], [1000]),\n w=([1000], [1000], [1000], [1000]),\n c=1,\n"

func TestZeroBubble(t *testing.T) {
	for _, c := range []struct {
		run  Run
		each int
	}{
		{Run{Layout: "Et*3|t*4|t*4|tttL", Stages: 4}, 1},
		{Run{Layout: "Et*3|t*4|t*4|tttL", Stages: 4}, 2},
		{Run{Layout: "Et|t*2|t*2|t*2|ttt|t|t|tL", Stages: 4, Order: "v"}, 1},
		{Run{Layout: "Et|t*2|t*2|t*2|ttt|t|t|tL", Stages: 4, Order: "loop"}, 1},
	} {
		text := plan(t, c.run, c.each)
		if c.run.Order == "v" {
			c.run.Order = "" // two chunks are a V
		}
		out, err := read("zero-bubble-log", written(t, start+"other lines\n"+text), c.run)
		expect.OK(t, err)
		for _, k := range out.Kinds {
			i := slices.Index(names[:], k.Name)
			share := 0.4
			if i == embedding {
				share = 1
			}
			for pass, got := range []float64{k.Seconds.Forward, k.Seconds.Input, k.Seconds.Weight} {
				if want := []float64{known[i][0], known[i][1] * (1 - share), known[i][1] * share}[pass]; math.Abs(got-want) > 1e-5 {
					t.Errorf("%+v: %s: pass %d takes %v s, want %v", c.run, k.Name, pass, got, want)
				}
			}
		}
	}
}

func TestZeroBubbleRefuses(t *testing.T) {
	r := Run{Layout: "Et*3|t*4|t*4|tttL", Stages: 4}
	good := plan(t, r, 1)
	for _, c := range []struct {
		name, text string
		run        Run
		want       string
	}{
		{"nothing measured", start, r, "want a log that goes on behind --zero-bubble-pipeline-timers-end-iter"},
		{"no line", "text\n", r, "want a log that goes on"},
		{"cut", start + good[:strings.Index(good, " w=")], r, "the log is cut inside a plan"},
		{"cut in the middle of a number", start + good[:strings.Index(good, " w=")+20], r, "want a multiple of the 4 stages"},
		{"cut and gone on", start + good[:strings.Index(good, " w=")] + good, r, "the plan before this one has no w"},
		{"two runs", start + good + start + good, r, "several runs in one file"},
		{"no W", start + strings.Replace(good, good[strings.Index(good, "w=(")+2:strings.Index(good, ",\n c=")], good[strings.Index(good, "b=(")+2:strings.Index(good, ",\n w=")], 1), r, "equal b and w"},
		{"zero", start + strings.Replace(good, "f=(("+fmt.Sprint(30500), "f=((0", 1), r, "stage 0, chunk 0: forward seconds 0"},
		{"other stages", good, Run{Layout: "Et*5|t*4|t*5L"}, "want a multiple of the 3 stages"},
		{"other chunks", good, Run{Layout: "Et*3|t*4|t*4|tttL", Stages: 2}, "times of 1 chunks, want 2"},
		{"order", good, Run{Layout: "Et*3|t*4|t*4|tttL", Order: "z"}, "--order z: want loop or v"},
	} {
		_, err := read("zero-bubble-log", written(t, c.text), c.run)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
