package verdict

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/device/nvml"
	"dynmo/src/expect"
)

// recorded returns the rows of several runs of dynmo bench node on one machine.
// testdata/noise.jsonl has a row for each check of a run, with the run's number.
func recorded(t *testing.T) [][]Row {
	t.Helper()
	text, err := os.ReadFile("testdata/noise.jsonl")
	expect.OK(t, err)
	runs := map[int][]Row{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var r struct {
			Run int
			Row
		}
		expect.OK(t, json.Unmarshal(lines.Bytes(), &r))
		runs[r.Run] = append(runs[r.Run], r.Row)
	}
	var list [][]Row
	for _, run := range runs {
		list = append(list, run)
	}
	slices.SortFunc(list, func(a, b []Row) int { return strings.Compare(fmt.Sprint(a[0].Value), fmt.Sprint(b[0].Value)) })
	return list
}

// table returns the rows of eight nodes. Each node is one of the recorded runs.
func table(runs [][]Row, draw *rand.Rand) []Row {
	var rows []Row
	for node, run := range draw.Perm(len(runs))[:8] {
		for _, r := range runs[run] {
			r.Node = fmt.Sprintf("node%d", node+1)
			rows = append(rows, r)
		}
	}
	return rows
}

// named judges a table as node_bench.sbatch does. Suspects are measured again: the test draws
// another recorded run, in which the check of slow is as slow again.
func named(rows []Row, runs [][]Row, draw *rand.Rand, slow Row, factor float64) []string {
	var again []Row
	for _, node := range Bad(Judge(rows, nil, nil)) {
		for _, r := range runs[draw.IntN(len(runs))] {
			if r.Node = node; r.Name() == slow.Name() {
				r.Value *= factor
			}
			again = append(again, r)
		}
	}
	return Bad(Judge(Again(rows, again), nil, nil))
}

// TestInjectedSlowness: a node at 70 or 50 % of its speed in one check is named, and no other. In
// healthy tables none is named.
func TestInjectedSlowness(t *testing.T) {
	runs := recorded(t)
	for seed := range uint64(5) { // fixed seeds: a failure must repeat
		draw := rand.New(rand.NewPCG(seed, 2))
		for range 100 {
			if bad := named(table(runs, draw), runs, draw, Row{}, 1); len(bad) > 0 {
				t.Errorf("seed %d: a healthy table: %v", seed, bad)
			}
		}
		for i := range 20 {
			rows := table(runs, draw)
			slow := &rows[draw.IntN(len(rows))]
			factor := []float64{0.7, 0.5}[i%2]
			slow.Value *= factor
			if bad := named(rows, runs, draw, *slow, factor); !slices.Equal(bad, []string{slow.Node}) {
				t.Errorf("seed %d: %s slowed: named %v", seed, slow.Name(), bad)
			}
		}
	}
}

// rows returns the values of one check on nodes a, b, c, …
func rows(check, unit string, values ...float64) []Row {
	var list []Row
	for i, v := range values {
		list = append(list, Row{Node: string(rune('a' + i)), Device: "gpu0", Model: "M", Check: check, Unit: unit, Value: v, Status: Measured})
	}
	return list
}

func TestJudge(t *testing.T) {
	wrong := rows("copy", "GB/s", 9, 9, 9, 9, 99)
	wrong[4].Wrong = 3
	absent := rows("copy", "GB/s", 9, 9, 9, 9, 0)
	absent[4].Status, absent[4].Note = NotAvailable, "no GPU"
	late := rows("copy", "GB/s", 9, 9)
	late[1].Status = TimedOut
	other := rows("copy", "GB/s", 9, 9, 9, 9, 9, 1)
	other[5].Model = "N"
	corrupt := rows("burn", "products", 1, 1, 1)
	for i, digest := range []string{"x", "x", "y"} {
		corrupt[i].Digest = digest
	}
	reference := &Reference{path: "r.toml", Bounds: []Bound{{Model: "M", Check: "copy", Least: 10, Unit: "GB/s"}, {Model: "M", Check: "latency", Most: 2, Unit: "us"}}}
	for _, test := range []struct {
		name      string
		rows      []Row
		reference *Reference
		expected  []string
		bad       string
		reason    string
	}{
		{"even", rows("copy", "GB/s", 9, 9, 9, 9, 9), nil, nil, "", ""},
		{"19 % slower is within the floor", rows("copy", "GB/s", 100, 100, 100, 100, 81), nil, nil, "", ""},
		{"21 % slower is not", rows("copy", "GB/s", 100, 100, 100, 100, 79), nil, nil, "e", "copy 79 % of the speed of its peers (gpu0)"},
		{"four nodes judge nobody", rows("copy", "GB/s", 100, 100, 100, 10), nil, nil, "", ""},
		{"a wide spread names nobody", rows("copy", "GB/s", 100, 130, 70, 120, 60), nil, nil, "", ""},
		{"times are worse when long", rows("latency", "us", 1, 1, 1, 1, 2), nil, nil, "e", "latency 50 % of the speed of its peers (gpu0)"},
		{"a missing link counts", rows("nvlinks", "links", 18, 18, 18, 18, 17), nil, nil, "e", "nvlinks 94 % of the speed of its peers (gpu0)"},
		{"temperature is described", rows("temperature", "°C", 40, 40, 40, 40, 90), nil, nil, "", ""},
		{"wrong results", wrong, nil, nil, "e", "copy: 3 elements of the result are wrong (gpu0)"},
		{"not available is no failure", absent, nil, nil, "", ""},
		{"out of time", late, nil, nil, "b", "copy: ran out of time (gpu0)"},
		{"another product is no peer", other, nil, nil, "", ""},
		{"other bits", corrupt, nil, nil, "c", "burn: 1 of 3 equal devices have the bits of this one: silent corruption (gpu0)"},
		{"below the reference", rows("copy", "GB/s", 9), reference, nil, "a", "copy 9 < 10 GB/s of the reference (gpu0)"},
		{"above the reference", rows("latency", "us", 3), reference, nil, "a", "latency 3 > 2 us of the reference (gpu0)"},
		{"no answer", rows("copy", "GB/s", 9), nil, []string{"a", "z"}, "z", "answer: the node did not answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			findings := Judge(test.rows, test.reference, test.expected)
			bad := strings.Join(Bad(findings), " ")
			if bad != test.bad {
				t.Fatalf("named %q, want %q", bad, test.bad)
			}
			if reason := Reason(findings, bad); reason != test.reason {
				t.Errorf("reason %q, want %q", reason, test.reason)
			}
		})
	}
}

func TestReference(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.toml")
	messages := rows("mpi_latency", "us", 2, 2, 2)
	for i := range messages {
		messages[i].Model = "" // the network is no product
	}
	var text bytes.Buffer
	expect.OK(t, Measure(append(rows("copy", "GB/s", 100, 101, 99), messages...), "here").Write(&text))
	expect.OK(t, os.WriteFile(path, text.Bytes(), 0o600))
	r, err := ReadReference(path)
	expect.OK(t, err)
	want := []Bound{{"", "mpi_latency", 0, 2.5, "us", "", "here"}, {"M", "copy", 80, 0, "GB/s", "", "here"}}
	if !slices.Equal(r.Bounds, want) {
		t.Errorf("%+v, want %+v", r.Bounds, want)
	}
	if strangers := r.Strangers([]Row{{Model: "N"}, {Model: "M 2"}}); !slices.Equal(strangers, []string{"N"}) {
		t.Errorf("strangers %v", strangers)
	}
	published, err := ReadReference("../../../jobs/reference/nvidia.toml")
	expect.OK(t, err)
	for _, b := range published.Bounds {
		if b.Source == "" {
			t.Errorf("%+v: no source", b)
		}
	}
	for text, want := range map[string]string{
		"":                                       "has no [[bound]]",
		"[[bound]]\nmodel=\"M\"":                 "wants a model and a check",
		"[[bound]]\nmodel=\"M\"\n[[bound]]\nx=1": "r.toml:4: bound[1].x: unknown key; the nearest is bound[1].most",
		"[[bound]]\nmodel=\"M\"\nMODEL=\"N\"":    "r.toml:3: bound[0].MODEL: unknown key",
		"[[bound]]\nmodel=\"M\"\ncheck=\"c\"\nleast=1\nmost=2\nunit=\"us\"":              "want one of them, above 0",
		"[[bound]]\nmodel=\"M\"\ncheck=\"c\"\nleast=1\nunit=\"us\"":                      "want least for rates, most for times",
		"[[bound]]\nmodel=\"M\"\ncheck=\"c\"\nleast=1\nunit=\"furlongs\"":                "want GFLOP/s",
		"[[bound]]\nmodel=\"M\"\ncheck=\"triad\"\nleast=1\nunit=\"GB/s\"\nclock=\"sun\"": `clock "sun": want "virtual"`,
		"[[bound]]\nmodel=\"M\"\ncheck=\"triadd\"\nleast=1\nunit=\"GB/s\"":               `bound 1 (M, triadd): unknown check "triadd"; the nearest is "triad"`,
		"[[bound]]\nmodel=\"M\"\ncheck=\"triad\"\nleast=1\nunit=\"GFLOP/s\"":             `unit "GFLOP/s": triad is in GB/s`,
	} {
		expect.OK(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := ReadReference(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestTournament: every node meets every other node once, and is in one pair at a time.
func TestTournament(t *testing.T) {
	for n := range 12 {
		met := map[[2]int]int{}
		for _, round := range Tournament(n) {
			busy := map[int]bool{}
			for _, p := range round {
				if busy[p[0]] || busy[p[1]] || p[0] >= p[1] {
					t.Fatalf("%d: round %v", n, round)
				}
				busy[p[0]], busy[p[1]] = true, true
				met[p]++
			}
		}
		if len(met) != n*(n-1)/2 {
			t.Errorf("%d: %d pairs", n, len(met))
		}
	}
}

// TestPairs: one slow node of eight, or one slow pair of three switches, is named.
func TestPairs(t *testing.T) {
	pairs := func(speed func(a, b int) float64) []Pair {
		var list []Pair
		for a := range 12 {
			for b := range a {
				list = append(list, Pair{A: fmt.Sprintf("n%02d", b), B: fmt.Sprintf("n%02d", a), Latency: 2, Bandwidth: speed(a, b), Plain: speed(a, b), Bytes: 4 << 20})
			}
		}
		return list
	}
	slowNode := pairs(func(a, b int) float64 {
		if a == 5 || b == 5 {
			return 5
		}
		return 10
	})
	if bad := Bad(Judge(PairRows(slowNode, true), nil, nil)); !slices.Equal(bad, []string{"n05"}) {
		t.Errorf("slow node 5: named %v", bad)
	}
	leaf, err := Leaves("SwitchName=s0 Nodes=n[00-03] # a leaf\nSwitchName=s1 Nodes=n[04-07]\nSwitchName=s2 Nodes=n08,n[09-11]\nSwitchName=top Switches=s[0-2]\n")
	expect.OK(t, err)
	slowLink := pairs(func(a, b int) float64 {
		if a/4 == 2 && b/4 == 0 {
			return 5
		}
		return 10
	})
	findings := Judge(append(PairRows(slowLink, true), SwitchRows(slowLink, leaf)...), nil, nil)
	if bad := Bad(findings); !slices.Equal(bad, []string{"s0-s2"}) {
		t.Errorf("slow link: named %v", bad)
	}
	for _, r := range PairRows([]Pair{{A: "a", B: "b", Latency: 1000, Bandwidth: 4, Bytes: 4 << 20}}, false) {
		if r.Check == "mpi_bandwidth" && r.Status != NotAvailable {
			t.Errorf("latency decides, but %+v", r)
		}
	}
}

func TestExpand(t *testing.T) {
	for list, want := range map[string]string{
		"": "", "a": "a", "gpu[001-003,7],login1": "gpu001 gpu002 gpu003 gpu7 login1", "r[1-2]n[1,3]": "r1n1 r1n3 r2n1 r2n3",
	} {
		if got, err := Expand(list); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%q: %v, %v, want %s", list, got, err, want)
		}
	}
	for _, list := range []string{"a[1", "a1]", "a[2-1]", "a[x]", "a[0-99999999]"} {
		if got, err := Expand(list); err == nil {
			t.Errorf("%q: %d names", list, len(got))
		}
	}
}

func TestHealthRows(t *testing.T) {
	healthy := nvml.Health{PCIeWidth: 16, PCIeMost: 16, Links: 18}
	for _, test := range []struct {
		health nvml.Health
		reason []string
		want   string
	}{
		{healthy, []string{"power cap"}, ""},
		{nvml.Health{Uncorrected: nvml.Unknown, Remapped: nvml.Unknown, PCIeWidth: nvml.Unknown, PCIeMost: nvml.Unknown, Links: nvml.Unknown}, nil, ""},
		{nvml.Health{Uncorrected: 2}, nil, "ecc_uncorrected: 2 ECC errors that could not be corrected since the driver was loaded (gpu1)"},
		{nvml.Health{RemapFailed: true}, nil, "remapped_rows: a row of the memory could not be replaced (gpu1)"},
		{nvml.Health{PCIeWidth: 8, PCIeMost: 16}, nil, "pcie_width: the PCIe link has 8 of 16 lanes (gpu1)"},
		{healthy, []string{"power brake"}, "throttle: the clock is held back: power brake (gpu1)"},
	} {
		findings := Judge(HealthRows("a", nvml.GPU{Index: 1, Throttle: test.reason}, test.health), nil, nil)
		if got := Reason(findings, "a"); got != test.want {
			t.Errorf("%+v: %q, want %q", test.health, got, test.want)
		}
	}
}

// TestXids: messages as NVIDIA's driver prints them (open-gpu-kernel-modules); with MIG the parenthesis has
// GPU-I and GPU-CI.
func TestXids(t *testing.T) {
	for text, want := range map[string]bool{
		"(PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.":              true,
		"(PCI:0000:4e:00 GPU-I:05): 79, pid=7194, name=python3, GPU has fallen off the bus.":              true,
		"(PCI:0000:4e:00 GPU-I:01 GPU-CI:02): 48, pid=9, name=a, An uncorrectable double bit error (DBE)": true,
		"(PCI:0000:4e:00): 95, pid=7062, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No":             true,
		"(PCI:0000:4e:00): 140, pid=7062, name=a, An unrecovered ECC error":                               true,
		"(PCI:0000:4e:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)":  true,
		"(PCI:0000:4e:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)":  false,
		"(PCI:0000:4e:00): 94, pid=7062, Contained: CE User Channel (0x9). RST: No, D-RST: No":            false,
		"(PCI:0000:4e:00): 31, pid=7062, name=a, Ch 00000008, MMU Fault":                                  false,
	} {
		rows := XIDRows("n", "4,1,1000000,-;NVRM: Xid "+text+"\n", 2)
		if got := rows[0].Status == Faulty; got != want {
			t.Errorf("faulty %v, want %v: %s", got, want, text)
		}
	}
}

func TestPCIRows(t *testing.T) {
	listed := []nvml.GPU{{Bus: "00000000:4E:00.0"}, {Index: 1, Bus: "00000000:5F:00.0", Fault: "lost"}}
	rows := PCIRows("n", []string{"0000:4e:00.0", "0000:5f:00.0", "0000:60:00.0"}, listed)
	if len(rows) != 1 || rows[0].Device != "gpu 0000:60:00.0" || rows[0].Status != Faulty {
		t.Errorf("%+v", rows)
	}
}

func TestXIDRows(t *testing.T) {
	const log = "4,1,1000000,-;NVRM: Xid (PCI:0000:17:00): 79, pid=1, GPU has fallen off the bus.\n" +
		"4,2,9000000000,-;NVRM: Xid (PCI:0000:18:00): 13, pid=2, a program's own\n" +
		"4,3,9000000000,-;NVRM: Xid (PCI:0000:19:00): 63, row remapped\n SUBSYSTEM=pci\n6,4,9000000001,-;usb 1-1: new\n"
	rows := XIDRows("a", log, 9001)
	if len(rows) != 1 || rows[0].Note != "Xid 63 on PCI 0000:19:00, row remapped" {
		t.Errorf("%+v", rows)
	}
	if rows := XIDRows("a", "", 1); len(rows) != 1 || rows[0].Status != Measured {
		t.Errorf("no message: %+v", rows)
	}
}

func TestCompleted(t *testing.T) {
	begun := Row{Node: "a", Device: "host", Check: "triad", Status: Begun}
	done := Row{Node: "a", Device: "host", Check: "gemm_f32", Status: Measured, Value: 1, Unit: "GFLOP/s"}
	for _, test := range []struct {
		records []Row
		want    string
	}{
		{nil, ""},
		{[]Row{begun, done, {Status: Ended}}, ""},
		{[]Row{done, begun}, "triad: the process died in this check"},
		{[]Row{begun, {Node: "a", Device: "host", Check: "triad", Status: TimedOut}}, "triad: ran out of time"},
	} {
		if got := Reason(Judge(Completed(test.records), nil, nil), "a"); got != test.want {
			t.Errorf("%v: %q, want %q", test.records, got, test.want)
		}
	}
}

// TestAgain: a device that was slow once may have been disturbed. A wrong result stays wrong.
func TestAgain(t *testing.T) {
	first := rows("copy", "GB/s", 100, 100, 60, 100, 100, 60)
	second := slices.Clone(first[2:])
	second[0].Value, second[1].Value, second[3].Value = 99, 70, 61
	second[2].Wrong = 1
	if bad := Bad(Judge(Again(first, second), nil, nil)); !slices.Equal(bad, []string{"e", "f"}) {
		t.Errorf("named %v, want e, f", bad)
	}
}

func TestCompare(t *testing.T) {
	old := Judge(rows("copy", "GB/s", 100, 100), nil, nil)
	now := Judge(rows("copy", "GB/s", 105, 60), nil, nil)
	if got, want := Compare(old, now), "changed: b gpu0 copy: 100 to 60 GB/s (-40 % speed)\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := Compare(nil, now), "nothing to compare: no node, device and check has a value in both outputs\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := Compare(now, now), "nothing has changed by more than 10 %\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestForeignText: a page and a file for Prometheus keep the text of nodes as text.
func TestForeignText(t *testing.T) {
	list := rows("copy", "GB/s", 9)
	list[0].Node = "<b>\"\n"
	findings := Judge(list, &Reference{Bounds: []Bound{{Model: "M", Check: "copy", Least: 10, Unit: "GB/s"}}}, nil)
	var page, text bytes.Buffer
	summary := Summarise(findings, nil)
	summary.Command = "dynmo --page <u>"
	expect.OK(t, Page(&page, findings, []Pair{{A: "<i>", B: "y", Bandwidth: 1}}, summary))
	if s := page.String(); strings.Contains(s, "<b>\"") || strings.Contains(s, "<i>") || strings.Contains(s, "<u>") || !strings.Contains(s, "&lt;b&gt;") {
		t.Error("the page has markup of a node's")
	}
	expect.OK(t, Prometheus(&text, findings, summary))
	if want := `dynmo_bench_bad{node="<b>\"\n",device="gpu0",check="copy"} 1`; !strings.Contains(text.String(), want) {
		t.Errorf("%s\nlacks %s", text.String(), want)
	}
}
