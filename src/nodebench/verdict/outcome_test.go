package verdict

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"dynmo/src/expect"
)

// TestSummarise: every outcome has its word, its status and its sentence.
func TestSummarise(t *testing.T) {
	reference := &Reference{path: "r.toml", Bounds: []Bound{{Model: "M", Check: "copy", Least: 10, Unit: "GB/s"}}}
	disturbed := rows("copy", "GB/s", 11, 12)
	disturbed[1].Status, disturbed[1].Note = Busy, "others took 1.9 of 2 cores, in all of 6 attempts"
	disturbedAndWrong := slices.Clone(disturbed)
	disturbedAndWrong[1].Wrong = 3
	disturbedAndSlow := append(rows("copy", "GB/s", 9), disturbed[1])
	foreign := rows("copy", "GB/s", 11)
	foreign[0].Model = `Z "9"`
	otherUnit := rows("copy", "GFLOP/s", 11)
	reports := []Row{
		{Node: "a", Device: "gpu0", Check: "ecc_uncorrected", Unit: "errors", Status: Measured},
		{Node: "a", Device: "gpu0", Check: "nvlinks", Unit: "links", Value: 18, Status: Measured},
		{Node: "a", Device: "host", Check: "rates", Status: NotAvailable, Note: "a Slurm job runs here"},
	}
	broken := append(slices.Clone(reports), Row{Node: "a", Device: "gpu0", Check: "xid", Status: Faulty, Note: "Xid 79"})
	sweep := []Row{{Node: "all", Device: "net", Check: "mpi_allreduce_1KiB", Unit: "us", Value: 3, Status: Busy, Sweep: &Sweep{Bytes: 1024, Ranks: 2}}}
	for _, test := range []struct {
		name      string
		rows      []Row
		reference *Reference
		want      Outcome
		status    int
		line      string
	}{
		{"above the bound", rows("copy", "GB/s", 11), reference, allHealthy, 0, "1 node, none slow or faulty"},
		{"like its peers", rows("copy", "GB/s", 9, 9, 9, 9, 9), nil, allHealthy, 0, "5 nodes, none slow or faulty"},
		{"nothing to compare with", rows("copy", "GB/s", 9), nil, onlyMeasured, 0, "Nothing was judged: give --reference, or measure 5 nodes"},
		{"below the bound", rows("copy", "GB/s", 9), reference, slowOrFaulty, 1, "1 of 1 nodes slow or faulty: a"},
		{"faulty", broken, nil, slowOrFaulty, 1, "1 of 1 nodes slow or faulty: a"},
		{"wrong on a busy host", disturbedAndWrong, reference, slowOrFaulty, 1, "1 of 2 nodes slow or faulty: b"},
		{"slow beside a busy host", disturbedAndSlow, reference, slowOrFaulty, 1, "1 of 2 nodes slow or faulty: a"},
		{"only reports", reports, reference, notMeasured, 3, "1 node, none measured: a Slurm job runs here"},
		{"nothing", nil, nil, notMeasured, 3, "0 nodes, none measured"},
		{"only a sweep", sweep, reference, notMeasured, 3, "0 nodes, none measured"},
		{"a busy host", disturbed, reference, CannotJudge, 4, "Not judged, because hosts were busy: b"},
		{"a busy host without reference", disturbed, nil, CannotJudge, 4, "Not judged, because hosts were busy: b"},
		{"no bound fits", foreign, reference, CannotJudge, 4, `Nothing was judged: the reference has no line for "Z \"9\""`},
		{"no bound has the unit", otherUnit, reference, CannotJudge, 4, "Not judged: a gpu0 copy: r.toml has a bound in GB/s"},
		{"one bound of two has another unit", append(rows("copy", "GB/s", 11), otherUnit...), reference, CannotJudge, 4, "Not judged: a gpu0 copy: r.toml has a bound in GB/s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			findings := Judge(test.rows, test.reference, nil)
			s := Summarise(findings, test.reference)
			if s.Verdict != test.want || s.Status != test.status || s.Line != test.line {
				t.Errorf("%q, status %d: %q\nwant %q, status %d: %q", s.Verdict, s.Status, s.Line, test.want, test.status, test.line)
			}
			var text, page, metrics bytes.Buffer
			expect.OK(t, Text(&text, findings, s))
			expect.OK(t, Page(&page, findings, nil, s))
			expect.OK(t, Prometheus(&metrics, findings, s))
			line, err := json.Marshal(s)
			expect.OK(t, err)
			word := string(test.want)
			for output, want := range map[string]string{
				text.String():    "verdict: " + word + " (status ",
				page.String():    "Verdict: <b>" + word + "</b>",
				metrics.String(): `verdict="` + word + `"} 1`,
				string(line):     `"verdict":"` + word + `"`,
			} {
				if !strings.Contains(output, want) {
					t.Errorf("%s\nlacks %s", output, want)
				}
			}
		})
	}
}

// shown returns findings of every state, with a sweep, and their summary.
func shown() ([]Finding, Summary) {
	list := rows("copy", "GB/s", 100, 100, 60, 100, 100, 98)
	list[5].Status, list[5].Note = Busy, "others took 1.9 of 2 cores, in all of 6 attempts"
	list[2].Low, list[2].High = 58, 61.5
	list = append(list,
		Row{Node: "a", Device: "gpu0", Model: "M", Check: "ecc_uncorrected", Unit: "errors", Status: Measured},
		Row{Node: "a", Device: "gpus", Check: "xid", Status: Measured, Note: "no fatal Xid message in two hours"},
		Row{Node: "a", Device: "gpu0", Model: "M", Check: "temperature", Unit: "°C", Value: 41, Status: Measured},
		Row{Node: "b", Device: "gpus", Check: "rates", Status: NotAvailable, Note: "no kernels"},
		Row{Node: "all", Device: "net", Check: "mpi_allreduce_16B", Unit: "us", Value: 2.5, Low: 2.25, High: 2.75, Status: Measured,
			Sweep: &Sweep{Bytes: 16, Ranks: 6, Algorithm: 0.0064, Bus: 0.0106667}},
		Row{Node: "all", Device: "net", Check: "mpi_allreduce_busbw", Unit: "GB/s", Value: 9.5, Low: 9, High: 10, Status: Measured})
	findings := Judge(list, nil, nil)
	s := Summarise(findings, nil)
	s.Bench, s.Version, s.Command = "node", "1.2", "dynmo bench node --json"
	s.Measured = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return findings, s
}

// TestGroupState: the line of a check has the worst state of its devices. Values from busy hosts stay out
// of its median.
func TestGroupState(t *testing.T) {
	for _, test := range []struct {
		states []State
		want   State
		values int
	}{
		{[]State{healthy, unjudged}, healthy, 2},
		{[]State{busy, healthy, unjudged}, busy, 2},
		{[]State{healthy, busy}, busy, 1},
		{[]State{busy, slow, healthy}, slow, 2},
		{[]State{slow, busy, failed}, failed, 2},
		{[]State{busy, busy}, busy, 2},
	} {
		var list []Finding
		for i, state := range test.states {
			f := Finding{Row: rows("copy", "GB/s", float64(i+1))[0], State: state}
			if state == busy {
				f.Status = Busy
			}
			list = append(list, f)
		}
		if g := newGroup([3]string{}, list); g.State != test.want || g.Values != test.values {
			t.Errorf("%v: %s with %d values, want %s with %d", test.states, g.State, g.Values, test.want, test.values)
		}
	}
}

// TestText: bad and doubtful findings stand on top, every check has a line, and the verdict ends the text.
func TestText(t *testing.T) {
	findings, s := shown()
	var text bytes.Buffer
	expect.OK(t, Text(&text, findings, s))
	expect.Golden(t, "testdata/text.txt", text.String())
}

// TestPrometheus: the golden file holds names and HELP texts of metrics. They never change, so that
// node_exporter keeps the series of files by several versions of dynmo.
func TestPrometheus(t *testing.T) {
	findings, s := shown()
	var text bytes.Buffer
	expect.OK(t, Prometheus(&text, findings, s))
	expect.Golden(t, "testdata/node.prom", text.String())
}

// TestPage: the page says when, by which version and command, and by which thresholds.
func TestPage(t *testing.T) {
	findings, s := shown()
	s.Thresholds = append(s.Thresholds, "A busy host counts for nothing.")
	var page bytes.Buffer
	expect.OK(t, Page(&page, findings, nil, s))
	for _, want := range []string{"2026-01-02 03:04:05 UTC", "dynmo 1.2", "dynmo bench node --json", "at least 20 %", "A busy host counts for nothing.",
		"<td>OK</td><td>gpus</td><td>xid</td>", "58 to 61.5", "<b>BUSY</b>", "mpi_allreduce</td>", "0.01067"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

// TestBusyAgain: a second measurement on a busy host does not replace one that counts, and one that counts
// replaces a busy one.
func TestBusyAgain(t *testing.T) {
	first, second := rows("copy", "GB/s", 100, 50, 70), rows("copy", "GB/s", 10, 90, 95)
	second[0].Status, first[1].Status = Busy, Busy
	first[2].Status, second[2].Status = Busy, Busy
	merged := Again(first, second)
	if merged[0].Value != 100 || merged[1].Value != 90 || merged[2].Status != Busy {
		t.Errorf("%+v", merged)
	}
}

// TestBusyPairs: pairs on busy hosts do not count. A node without any other pair is not judged.
func TestBusyPairs(t *testing.T) {
	pairs := []Pair{
		{A: "a", B: "b", Latency: 2, Bandwidth: 10, Plain: 10, Bytes: 4 << 20},
		{A: "a", B: "c", Latency: 9, Bandwidth: 99, Plain: 99, Bytes: 4 << 20, Busy: []string{"c: others took 2 cores"}},
	}
	for _, r := range PairRows(pairs, false) {
		switch {
		case r.Node == "c" && (r.Status != Busy || r.Note != "c: others took 2 cores"):
			t.Errorf("%+v", r)
		case r.Node != "c" && (r.Status != Measured || r.Unit == "GB/s" && r.Value != 10):
			t.Errorf("%+v", r)
		}
	}
	// Messages between all nodes name the busy hosts too.
	all := Row{Node: "all", Device: "net", Check: "mpi_allreduce_busbw", Unit: "GB/s", Value: 1}
	all.SetBusy([]string{"d: others took 2 cores"})
	findings := Judge(append(PairRows(pairs, false), all), nil, nil)
	if line := busyLine(findings); line != "Not judged, because hosts were busy: c, d" {
		t.Error(line)
	}
	if reason := Reason(findings, "d"); reason != "mpi_allreduce_busbw: d: others took 2 cores" {
		t.Error(reason)
	}
	var metrics bytes.Buffer
	expect.OK(t, Prometheus(&metrics, findings, Summarise(findings, nil)))
	for _, host := range []string{"c", "d"} {
		if want := `dynmo_bench_busy{node="` + host + `"} 1`; !strings.Contains(metrics.String(), want) {
			t.Errorf("%s\nlacks %s", metrics.String(), want)
		}
	}
	if list := SwitchRows(pairs[1:], map[string]string{"a": "s1", "c": "s2"}); list != nil {
		t.Errorf("%+v", list)
	}
}

// TestOldStates: --compare reads the files of versions that wrote "ok".
func TestOldStates(t *testing.T) {
	var f Finding
	expect.OK(t, json.Unmarshal([]byte(`{"node":"a","state":"ok"}`), &f))
	if f.State != healthy {
		t.Errorf("state %s", f.State)
	}
}

// TestDiedWithAnother: one node of three dies, and Slurm kills the other processes of the step. The others
// end in the second measurement, one of them on a busy host. Only the first node is faulty.
func TestDiedWithAnother(t *testing.T) {
	first, second := rows("copy", "GB/s", 100, 100, 100), rows("copy", "GB/s", 100, 100)
	for _, node := range []string{"a", "b", "c"} {
		first = append(first, Completed([]Row{{Node: node, Device: "net", Check: "pair a b", Status: Begun}})...)
	}
	second[1].Status = Busy
	second = append(second, Row{Node: "b", Device: "host", Check: "triad", Status: Busy})
	findings := Judge(Again(first, second), nil, []string{"a", "b", "c"})
	if bad := Bad(findings); !slices.Equal(bad, []string{"c"}) {
		t.Errorf("named %v, want c", bad)
	}
	if busy := BusyNodes(findings); !slices.Equal(busy, []string{"b"}) {
		t.Errorf("busy %v, want b", busy)
	}
	second = append(second, Completed([]Row{{Node: "a", Device: "host", Check: "triad", Status: Begun}})...)
	if bad := Bad(Judge(Again(first, second), nil, nil)); !slices.Equal(bad, []string{"a", "c"}) {
		t.Errorf("a died twice: named %v, want a and c", bad)
	}
}
