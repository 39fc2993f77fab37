package report

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// render returns the page of a run.
func render(t testing.TB, r Run) string {
	t.Helper()
	var b bytes.Buffer
	expect.OK(t, HTML(&b, r))
	return b.String()
}

// outside matches what would make a browser ask somebody else.
var outside = regexp.MustCompile(`(?i)(src|href)\s*=|url\(|@import|fetch\(|XMLHttpRequest|\bimport\(`)

func TestPage(t *testing.T) {
	text := render(t, small.read(t))
	for _, want := range []string{
		"<h1>sample &lt;b&gt;&amp;amp;&lt;/b&gt; &lt;/script&gt;</h1>", "<dd>&lt;node&gt;</dd>",
		"4 x 1 stages", "<b>virtual clock</b>", "Steps without a finite value, left out: 1",
		"first cuts, never moved", `"title":"sparsity"`, "Layers moved, 12.3 MB: stages now hold 2, 3, 4, 5 layers.", "50 % of the prunable weights pruned, 1 M of 2 M left.",
		"before: steps 10 to 14", "after: steps 15 to 39",
		`"title":"loss"`, "Between changes of the model", "[parallel]",
		"<noscript><p class=\"none\">The charts are drawn by a script.", "Copyright (c) 2022 Leon Sorokin",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	if found := outside.FindAllString(text, -1); found != nil {
		t.Errorf("the page asks outside: %q", found)
	}
	for _, unwanted := range []string{"unfinished", "torn", "ZgotmplZ", "NaN"} {
		if strings.Contains(strings.Replace(text, asset("uplot/uPlot.iife.min.js"), "", 1), unwanted) {
			t.Errorf("%q on the page", unwanted)
		}
	}
}

// TestNoticeOfUPlot: NOTICE names the version of the copy of uPlot.
func TestNoticeOfUPlot(t *testing.T) {
	notice, err := os.ReadFile("../../../NOTICE")
	expect.OK(t, err)
	version := regexp.MustCompile(`uPlot \(v([0-9.]+)\)`).FindStringSubmatch(asset("uplot/uPlot.iife.min.js"))
	if version == nil || !strings.Contains(string(notice), "uPlot "+version[1]) {
		t.Errorf("NOTICE does not name version %q of uPlot", version)
	}
}

// TestOneTimeline: a step is not compared with itself.
func TestOneTimeline(t *testing.T) {
	all := small.read(t)
	for _, n := range []int{1, 2} {
		r := all
		r.Timelines = all.Timelines[:n]
		if got := strings.Count(render(t, r), `<div class="lane">`); got != n {
			t.Errorf("%d timelines of %d steps", got, n)
		}
	}
}

// TestPageShowsHiddenMarks: marks that reverse the direction of text are made visible.
func TestPageShowsHiddenMarks(t *testing.T) {
	r := small.read(t)
	const turn = "\u202e"
	r.Config.Run.Name, r.Settings, r.Provenance.Host = "a"+turn, "b"+turn+"\n", "c"+turn
	r.Events[0].Detail["what"] = "d" + turn
	text := render(t, r)
	if strings.Contains(text, turn) {
		t.Error("a hidden mark on the page")
	}
	for _, want := range []string{`a\u202e`, `b\u202e`, `c\u202e`, `D\u202e`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q on the page", want)
		}
	}
}

// TestPageSaysWhatIsMissing: runs with incomplete records have a page too.
func TestPageSaysWhatIsMissing(t *testing.T) {
	dir := small.write(t)
	for _, name := range []string{record.TraceFile, record.ProvenanceFile, record.CostsFile} {
		expect.OK(t, os.Remove(filepath.Join(dir, name)))
	}
	r, err := ReadAll(dir)
	expect.OK(t, err)
	r.Events = nil
	for i := range r.Metrics {
		m := &r.Metrics[i]
		m.Loss, m.Cuts, m.Schedule, m.Idle = record.Float(math.NaN()), nil, "", trace.Idle{}
	}
	text := render(t, r)
	if strings.Contains(text, "never moved") {
		t.Error("a baseline without costs")
	}
	for _, want := range []string{
		"no step has a finite value", "Cuts were not recorded", "No timeline was recorded: trace.json is missing",
		"Idle time by cause was not recorded", "Nothing changed in this run", "provenance.json is missing",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q on the page", want)
		}
	}
}

func TestReadAllRefuses(t *testing.T) {
	for _, c := range []struct{ name, file, contents, want string }{
		{"timeline", "trace.json", "[\n{\"name\":\n{}\n]", "trace.json:2: "},
		{"provenance", "provenance.json", "{", "provenance.json: "},
		{"costs", "costs.jsonl", "{}\n", "costs.jsonl: table 0: "},
		{"end", "summary.json", "{", "summary.json: "},
	} {
		dir := small.write(t)
		expect.OK(t, os.WriteFile(filepath.Join(dir, c.file), []byte(c.contents), 0o600))
		if _, err := ReadAll(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want …%s…", c.name, err, c.want)
		}
	}
}

// TestPageOfALongRun: the size of the page does not follow that of the run.
func TestPageOfALongRun(t *testing.T) {
	s := sample{schedule.KindZBH1, 24, 1, 96, 50, 10_000, 5000, 5010}
	quiet := s.read(t)
	busy := quiet // layers move after every step, and many steps have a timeline
	busy.Metrics, busy.Timelines = slices.Clone(quiet.Metrics), slices.Repeat(quiet.Timelines, 10)
	for i := range busy.Metrics {
		busy.Metrics[i].Cuts = quiet.Metrics[i%2*(s.steps-1)].Cuts
		busy.Events = append(busy.Events, record.Event{Step: i, Kind: record.Migrate, Clock: "virtual", Bytes: 1, Seconds: 1})
	}
	for _, c := range []struct {
		name string
		run  Run
		most int
	}{{"quiet", quiet, 1e6}, {"busy", busy, 6e6}} {
		text := render(t, c.run)
		t.Logf("%s: %.2f MB", c.name, float64(len(text))/1e6)
		if len(text) > c.most {
			t.Errorf("%s: %d bytes, want at most %d", c.name, len(text), c.most)
		}
	}
}

func TestThinKeepsExtremes(t *testing.T) {
	c := chart{Curves: make([]curve, 2)}
	for i := range 10_000 {
		c.Steps = append(c.Steps, i)
		for k := range c.Curves {
			c.Curves[k].Y = append(c.Curves[k].Y, record.Float(math.Sin(float64(i))))
		}
	}
	spikes := []struct {
		curve, step int
		y           record.Float
	}{{0, 1234, 100}, {0, 8765, -100}, {1, 1235, 100}}
	for _, s := range spikes {
		c.Curves[s.curve].Y[s.step] = s.y
	}
	c.Curves[0].Y[50] = record.Float(math.NaN())
	c.thin()
	if len(c.Steps) > maxPoints+1 || !slices.IsSorted(c.Steps) {
		t.Errorf("%d steps, want at most %d, in order", len(c.Steps), maxPoints+1)
	}
	for _, s := range spikes {
		if i := slices.Index(c.Steps, s.step); i < 0 || c.Curves[s.curve].Y[i] != s.y {
			t.Errorf("the spike at %v is lost", s)
		}
	}
	if i := slices.Index(c.Steps, 50); i < 0 || finite(c.Curves[0].Y[i]) {
		t.Error("the gap is lost")
	}
}

// TestCrop: steps that are many times longer than the others do not flatten them, and
// are reported.
func TestCrop(t *testing.T) {
	for _, c := range []struct {
		name    string
		seconds []record.Float
		top     float64
		above   string
	}{
		{"usual", []record.Float{0.2, 0.1, 0.1}, 0, ""},
		{"a long first step", []record.Float{12.3456, 0.1, 0.1}, 300, "Above the picture: step 0, 12346 ms."},
		{"two", []record.Float{1, 0.1, 0.1, 0.1, 2}, 300, "Above the picture: 2 steps, the longest 2000 ms (step 4)."},
		{"no time", []record.Float{0, 0}, 0, ""},
		{"not a number", []record.Float{record.Float(math.NaN()), 0.1}, 0, ""},
	} {
		var r Run
		for step, seconds := range c.seconds {
			r.Metrics = append(r.Metrics, record.Metrics{Step: step, StepSeconds: seconds})
		}
		if got := r.figure(nil, false); math.Abs(got.Top-c.top) > 1e-9 || got.Above != c.above {
			t.Errorf("%s: top %v, %q; want %v, %q", c.name, got.Top, got.Above, c.top, c.above)
		}
	}
}

func TestHeat(t *testing.T) {
	line := func(kind string, cuts ...int) record.Metrics {
		stages := len(cuts) - 1
		if kind == "zb-v" || kind == "interleaved" {
			stages = (stages + 1) / 2
		}
		return record.Metrics{Schedule: kind, Cuts: cuts, Vee: kind == "zb-v", LayersPerStage: make([]int, stages)}
	}
	for _, c := range []struct {
		name    string
		metrics []record.Metrics
		want    []box
	}{
		{"a move of one cut leaves the others", []record.Metrics{line("1f1b", 0, 2, 4, 6), line("1f1b", 0, 2, 4, 6), line("1f1b", 0, 2, 5, 6)},
			[]box{{0, 0, 0, 3, 0, 2}, {1, 0, 0, 2, 2, 2}, {2, 0, 0, 2, 4, 2}, {1, 0, 2, 1, 2, 3}, {2, 0, 2, 1, 5, 1}}},
		{"interleaved is a loop", []record.Metrics{line("interleaved", 0, 1, 2, 3, 4)},
			[]box{{0, 0, 0, 1, 0, 1}, {1, 0, 0, 1, 1, 1}, {0, 1, 0, 1, 2, 1}, {1, 1, 0, 1, 3, 1}}},
		{"zb-v turns back", []record.Metrics{line("zb-v", 0, 1, 2, 3, 4)},
			[]box{{0, 0, 0, 1, 0, 1}, {1, 0, 0, 1, 1, 1}, {1, 1, 0, 1, 2, 1}, {0, 1, 0, 1, 3, 1}}},
		{"an empty stage has no box", []record.Metrics{line("1f1b", 0, 3, 3)}, []box{{0, 0, 0, 1, 0, 3}}},
		{"another schedule", []record.Metrics{line("zb-v", 0, 1, 2, 3, 4), line("1f1b", 0, 1, 4)},
			[]box{{0, 0, 0, 1, 0, 1}, {1, 0, 0, 1, 1, 1}, {1, 1, 0, 1, 2, 1}, {0, 1, 0, 1, 3, 1}, {0, 0, 1, 1, 0, 1}, {1, 0, 1, 1, 1, 3}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Run{Config: config.Default(), Metrics: c.metrics}
			h, err := r.heat(nil, nil, places{})
			expect.OK(t, err)
			if diff := cmp.Diff(c.want, h.Boxes); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, c := range []struct {
		name, want string
		metrics    []record.Metrics
	}{
		{"fewer layers", "run/metrics.jsonl:2: partition [0 1 2] does not cover layers 0 to 4", []record.Metrics{line("1f1b", 0, 2, 4), line("1f1b", 0, 1, 2)}},
		{"odd pieces in a V", "run/metrics.jsonl:1: cuts: 3 virtual stages, want a multiple of the 2 stages", []record.Metrics{line("zb-v", 0, 1, 2, 3)}},
		{"no layer", "run/metrics.jsonl:1: cuts: no layer", []record.Metrics{line("1f1b", 0, 0)}},
	} {
		r := Run{Dir: "run", Config: config.Default(), Metrics: c.metrics}
		if _, err := r.heat(nil, nil, places{}); err == nil || err.Error() != c.want {
			t.Errorf("%s: got  %v\nwant %s", c.name, err, c.want)
		}
	}
}

// TestManyLayouts: a run whose layout changes after every step has no more boxes
// than a page can show.
func TestManyLayouts(t *testing.T) {
	r := Run{Config: config.Default()}
	for step := range 10_000 {
		r.Metrics = append(r.Metrics, record.Metrics{Step: step, Schedule: "1f1b", Cuts: []int{0, 1 + step%2, 3}, LayersPerStage: make([]int, 2)})
	}
	h, err := r.heat(nil, nil, places{})
	expect.OK(t, err)
	if most := 2 * maxColumns; len(h.Boxes) > most || h.Thinned == 0 {
		t.Errorf("%d boxes, %d steps left out; want at most %d boxes", len(h.Boxes), h.Thinned, most)
	}
}

func TestAround(t *testing.T) {
	var r Run
	for step, makespan := range []float64{9, 9, 6, 6, 6, 3, 3, 2} {
		r.Metrics = append(r.Metrics, record.Metrics{Step: step, Makespan: record.Float(makespan)})
	}
	if _, _, _, ok := r.bestMove(); ok {
		t.Error("a run without a move has a before and an after")
	}
	r.Events = []record.Event{{Step: 2, Kind: record.Dynamic}, {Step: 4, Kind: record.Migrate}, {Step: 6, Kind: record.Migrate}, {Step: 7, Kind: record.Migrate}}
	before, after, step, ok := r.bestMove()
	if want := (segment{2, 5}); !ok || before != want || after != (segment{5, 7}) || step != 4 {
		t.Errorf("before %v, after %v, step %d, %v; want {2 5}, {5 7}, 4: the prune at 2 is no gain of moving", before, after, step, ok)
	}
}

// TestIdleSumsUp: the parts are the step.
func TestIdleSumsUp(t *testing.T) {
	r := small.read(t)
	table, _ := r.idleTable()
	if sum, total := table.Sum[2], table.Total[2]; math.Abs(sum-total) > 1e-9*total {
		t.Errorf("parts sum to %v, the step took %v", sum, total)
	}
}

// TestTimelinesUnpack: the sums that the script computes equal the recorded times, to a millionth
// of the longest step.
func TestTimelinesUnpack(t *testing.T) {
	r := small.read(t)
	packed := r.timelines(small.move, places{})
	if got := [2]int{packed.Steps[packed.First[0]].step, packed.Steps[packed.First[1]].step}; got != [2]int{small.move, small.move + 1} {
		t.Errorf("steps %v are shown first, want those around the move", got)
	}
	for i, recorded := range r.Timelines {
		begin, _ := bounds(recorded)
		for stage, spans := range recorded.Stages {
			row, at := packed.Steps[i].Stages[stage], 0
			for n, s := range spans {
				v := row[5*n : 5*n+5]
				start := at + v[3]
				at = start + v[4]
				off := max(math.Abs(float64(start)*packed.Unit+begin-s.Start), math.Abs(float64(at)*packed.Unit+begin-s.End))
				if packed.Kinds[v[0]] != s.Op.String() || v[1] != s.Microbatch || v[2] != s.Chunk || off > packed.Unit {
					t.Fatalf("step %d, stage %d, span %d: %v, want %+v", recorded.Step, stage, n, v, s)
				}
			}
		}
	}
}
