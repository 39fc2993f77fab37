package record

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// twoStages is a step whose spans are multiples of 1/4 µs, which files store exactly.
func twoStages(step int) trace.Step {
	span := func(kind trace.Op, microbatch, chunk int, start, end float64) trace.Span {
		return trace.Span{Op: kind, Layer: -1, Microbatch: microbatch, Chunk: chunk, Start: start / (1 << 22), End: end / (1 << 22)}
	}
	return trace.Step{Step: step, Clock: "virtual", Stages: [][]trace.Span{
		{span(trace.F, 3, 0, 0, 8), span(trace.I, 3, 1, 24, 32), span(trace.Optimizer, -1, 0, 40, 44)},
		{span(trace.F, 3, 1, 8, 16), span(trace.B, 3, 0, 16, 16), span(trace.W, 3, 0, 16, 24)},
	}}
}

// near reports whether timelines are equal within the nanosecond that files round to.
var near = cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })

func TestTraceReadsBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r, err := Open(dir, "", Provenance{})
	expect.OK(t, err)
	want := []trace.Step{twoStages(7), twoStages(8), twoStages(9)}
	for _, w := range want {
		expect.OK(t, r.Trace(w))
	}
	path := filepath.Join(dir, "trace.json")
	read := func(text string) []trace.Step {
		t.Helper()
		got, err := ReadTrace("trace.json", strings.NewReader(text))
		expect.OK(t, err)
		return got
	}
	killed, err := os.ReadFile(path)
	expect.OK(t, err)
	if diff := cmp.Diff(want, read(string(killed)), near); diff != "" {
		t.Errorf("before the run is closed:\n%s", diff)
	}
	half := string(killed[:len(killed)-10])
	if got := read(half); len(got) != 3 || len(got[2].Stages[1]) != 2 {
		t.Errorf("with half of the last line: %+v", got)
	}
	expect.OK(t, r.Close())
	closed, err := os.ReadFile(path)
	expect.OK(t, err)
	if diff := cmp.Diff(want, read(string(closed)), near); diff != "" {
		t.Error(diff)
	}
	if !json.Valid(closed) {
		t.Errorf("not JSON:\n%s", closed)
	}
}

// TestTraceFormat: the names and units that Perfetto reads.
func TestTraceFormat(t *testing.T) {
	var b strings.Builder
	expect.OK(t, WriteTrace(&b, []trace.Step{twoStages(7)}))
	const want = `[
{"name":"process_name","ph":"M","ts":0.000,"pid":0,"tid":0,"args":{"name":"replica 0, virtual clock","clock":"virtual"}},
{"name":"thread_name","ph":"M","ts":0.000,"pid":0,"tid":0,"args":{"name":"stage 0"}},
{"name":"thread_name","ph":"M","ts":0.000,"pid":0,"tid":1,"args":{"name":"stage 1"}},
{"name":"F3","cat":"F","ph":"X","ts":0.000,"dur":1.907,"pid":0,"tid":0,"args":{"step":7,"microbatch":3,"chunk":0}},
{"name":"I3.1","cat":"I","ph":"X","ts":5.722,"dur":1.907,"pid":0,"tid":0,"args":{"step":7,"microbatch":3,"chunk":1}},
{"name":"optimizer","cat":"optimizer","ph":"X","ts":9.537,"dur":0.954,"pid":0,"tid":0,"args":{"step":7}},
{"name":"F3.1","cat":"F","ph":"X","ts":1.907,"dur":1.907,"pid":0,"tid":1,"args":{"step":7,"microbatch":3,"chunk":1}},
{"name":"B3","cat":"B","ph":"X","ts":3.815,"dur":0.000,"pid":0,"tid":1,"args":{"step":7,"microbatch":3,"chunk":0}},
{"name":"W3","cat":"W","ph":"X","ts":3.815,"dur":1.907,"pid":0,"tid":1,"args":{"step":7,"microbatch":3,"chunk":0}}
]
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	b.Reset()
	if err := WriteTrace(&b, nil); err != nil || !json.Valid([]byte(b.String())) {
		t.Errorf("no step: %q, %v", b.String(), err)
	}
}

func TestReadTraceRefuses(t *testing.T) {
	const named = `{"name":"thread_name","ph":"M","ts":0,"pid":0,"tid":0,"args":{"name":"stage 0"}},` + "\n"
	good := `{"name":"F0","cat":"F","ph":"X","ts":0,"dur":1,"pid":0,"tid":0,"args":{"step":0,"microbatch":0,"chunk":0}}`
	for _, c := range []struct{ name, text, want string }{
		{"an object", `{"traceEvents":[]}`, `t:1: "{\"traceEvents\":[]}", want the [ of an array of events, one a line`},
		{"a damaged line", "[\n{\"name\":\n" + good + "\n]\n", "t:2: unexpected end of JSON input"},
		{"a damaged last line of a whole file", "[\n" + named + "{\"name\":\n]\n", "t:3: unexpected end of JSON input"},
		{"no step", "[\n" + named + strings.Replace(good, `"step":0,`, "", 1) + "\n]", "t:3: args.step is missing"},
		{"a stage below 0", "[\n" + named + strings.Replace(good, `"tid":0`, `"tid":-1`, 1) + "\n]", "t:3: tid: -1, want one of the 1 stages named before"},
		{"a stage without a name", "[\n" + good + "\n]", "t:2: tid: 0, want one of the 0 stages named before"},
		{"a stage left out", "[\n" + named + named + strings.Replace(good, `"tid":0`, `"tid":1`, 1) + "\n]", "t:4: tid: 1, want stage 0 of step 0 before it"},
		{"an end before the start", "[\n" + named + strings.Replace(good, `"dur":1`, `"dur":-1`, 1) + "\n]", "t:3: dur: -1, want a number >= 0"},
		{"a strange kind", "[\n" + named + strings.Replace(good, `"cat":"F"`, `"cat":"gc"`, 1) + "\n]", `t:3: cat: "gc", want F, I, W, B, reduce or optimizer`},
	} {
		if _, err := ReadTrace("t", strings.NewReader(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%s: got  %v\nwant %s", c.name, err, c.want)
		}
	}
}

func TestCostsReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	r, err := Open(dir, "", Provenance{})
	expect.OK(t, err)
	defer r.Close()
	layers := []cost.Layer{{Name: "block 0", Forward: 1, BackwardInput: 2, BackwardWeight: 3}}
	order, err := schedule.New(schedule.Kind1F1B, 1, 1, 1)
	expect.OK(t, err)
	want := Series{
		{Phase: cost.Phase{Step: 0, Steps: 4, Table: cost.Table{Layers: layers}}},
		{Phase: cost.Phase{Step: 4, Steps: 2, Table: cost.Table{Layers: layers}, Change: "prune"}, Run: &Course{Layout: layout.New([]int{0, 1}, order, 1, layout.StageMajor), Makespan: 0.5}},
	}
	for _, s := range want {
		expect.OK(t, r.Costs(s))
	}
	f, err := os.Open(filepath.Join(dir, "costs.jsonl"))
	expect.OK(t, err)
	defer f.Close()
	got, err := ReadSeries("costs.jsonl", f, 1)
	expect.OK(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// FuzzReadTrace: whatever the file, no panic, and no span that ends before it
// starts.
func FuzzReadTrace(f *testing.F) {
	var b strings.Builder
	expect.OK(f, WriteTrace(&b, []trace.Step{twoStages(7), twoStages(8)}))
	f.Add(b.String())
	f.Add(b.String()[:b.Len()/2])
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ReadTrace("t", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, step := range list {
			for _, spans := range step.Stages {
				for _, s := range spans {
					if !(s.Start <= s.End) {
						t.Fatalf("span %+v", s)
					}
				}
			}
		}
	})
}

// noRoom is a file that takes no more.
type noRoom struct{ writes int }

func (f *noRoom) Write([]byte) (int, error) { f.writes++; return 0, errors.New("file too large") }

// TestTraceCutOff: after a step that could not be written nothing is, and the
// error is reported once.
func TestTraceCutOff(t *testing.T) {
	f := &noRoom{}
	c := chrome{out: f}
	step := trace.Step{Stages: [][]trace.Span{{{Op: trace.F, Start: 0, End: 1}}}}
	if err := c.add(step); err == nil {
		t.Error("a full file took a step")
	}
	if err := c.close(); err != nil || f.writes != 1 {
		t.Errorf("close: %v after %d writes, want nothing more", err, f.writes)
	}
}
