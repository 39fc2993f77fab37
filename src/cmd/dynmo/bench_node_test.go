package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dynmo/src/expect"
	"dynmo/src/kernel/cpu"
	"dynmo/src/nodebench/verdict"
)

// TestBenchNode checks figures, records, and the files that flags ask for. It ignores speeds,
// because they depend on the machine's other work.
func TestBenchNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := alone.run(t, dir, "bench", "node", "--small", "--seconds", "0.01", "--threads", "1", "--json", "--records", "records",
		"--page", "page.html", "--prometheus", "node.prom", "--burn", "10ms")
	if e.status != exitDone {
		t.Fatalf("status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
	var summary verdict.Summary
	lines := strings.Split(strings.TrimSpace(e.stdout), "\n")
	expect.OK(t, json.Unmarshal([]byte(lines[len(lines)-1]), &summary))
	if summary.Verdict != "measured" || summary.Bench != "node" || summary.Version == "" || !strings.Contains(summary.Command, "bench node --small") || time.Since(summary.Measured) > time.Hour {
		t.Errorf("%+v", summary)
	}
	found := map[string]verdict.Finding{}
	for _, f := range decodedLines[verdict.Finding](t, e.stdout) {
		found[f.Check] = f
	}
	for _, f := range found {
		if f.Unit == "GB/s" || f.Unit == "GFLOP/s" { // a reference may bound every rate
			expect.OK(t, os.WriteFile(filepath.Join(dir, "bound.toml"), fmt.Appendf(nil, "[[bound]]\nmodel = \"M\"\ncheck = %q\nleast = 1\nunit = %q\n", f.Check, f.Unit), 0o600))
			_, err := verdict.ReadReference(filepath.Join(dir, "bound.toml"))
			expect.OK(t, err)
		}
	}
	names := []string{"triad", "file_write", "file_read"}
	if cpu.Built {
		names = append(names, "gemm_f32", "csr_f32", "burn")
	}
	for _, name := range names {
		if f := found[name]; f.Value <= 0 || f.Wrong != 0 || f.Status != verdict.Measured {
			t.Errorf("%s: %+v", name, f)
		}
	}
	for file, want := range map[string]string{"page.html": "triad", "node.prom": `check="triad"`} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s: %v", file, want, err)
		}
	}
	e = alone.run(t, dir, "bench", "node", "--judge", "records", "--nodes", nodeName()+",elsewhere")
	fails(t, e, "elsewhere: answer: the node did not answer")
	alone.run(t, dir, "bench", "node", "--judge", "records", "--reference", "bound.toml").refused(t, exitUsage, "--judge: rates of --small mean nothing")
	alone.run(t, dir, "bench", "node", "--judge", "records", "--write-reference", "ref.toml").refused(t, exitUsage, "--judge: rates of --small mean nothing")
}

// TestBenchNodeJudges: every verdict on records has its exit status and its word.
func TestBenchNodeJudges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const reference = "[[bound]]\nmodel = \"M\"\ncheck = \"triad\"\nleast = 10\nunit = \"GB/s\"\nsource = \"a test\"\n"
	expect.OK(t, os.WriteFile(filepath.Join(dir, "r.toml"), []byte(reference), 0o600))
	measured := verdict.Row{Node: "a", Device: "host", Model: "M", Check: "triad", Value: 11, Unit: "GB/s", Status: verdict.Measured}
	slow, foreign, busy := measured, measured, measured
	slow.Value, foreign.Model = 9, "N"
	busy.Status, busy.Note = verdict.Busy, "others took 2 cores"
	absent := verdict.Row{Node: "a", Device: "host", Check: "rates", Status: verdict.NotAvailable, Note: "a job runs"}
	expect.OK(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	e := alone.run(t, dir, "bench", "node", "--judge", "empty", "--nodes", "node[1-3]", "--page", "empty.html", "--prometheus", "empty.prom", "--json")
	if e.status != 3 || !strings.Contains(e.stderr, "dynmo: No node answered (node1, node2, node3): dynmo did not start on any") {
		t.Errorf("no records: status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
	page, err := os.ReadFile(filepath.Join(dir, "empty.html"))
	expect.OK(t, err)
	metrics, err := os.ReadFile(filepath.Join(dir, "empty.prom"))
	expect.OK(t, err)
	for _, text := range []string{e.stdout, string(page), string(metrics)} {
		if strings.Contains(text, "0001-01-01") || strings.Contains(text, "timestamp") {
			t.Errorf("no records, but a time: %s", text)
		}
	}
	for i, test := range []struct {
		row    verdict.Row
		status int
		word   string
		says   string // among the errors
	}{
		{measured, exitDone, "healthy", ""},
		{slow, exitFailure, "slow or faulty", "dynmo: a: triad 9 < 10 GB/s of the reference"},
		{absent, 3, "not measured", "dynmo: 1 node, none measured: a job runs"},
		{busy, 4, "cannot judge", "dynmo: a: triad: others took 2 cores"},
		{foreign, 4, "cannot judge", `dynmo: Nothing was judged: the reference has no line for "N"`},
	} {
		folder := fmt.Sprintf("records%d", i)
		expect.OK(t, os.Mkdir(filepath.Join(dir, folder), 0o700))
		var lines bytes.Buffer
		expect.OK(t, writeLines(&lines, []verdict.Row{test.row, {Node: "a", Status: verdict.Ended}}))
		expect.OK(t, os.WriteFile(filepath.Join(dir, folder, "a.0.jsonl"), lines.Bytes(), 0o600))
		args := []string{"bench", "node", "--judge", folder, "--reference", "r.toml"}
		e := alone.run(t, dir, args...)
		if e.status != test.status || !strings.HasSuffix(e.stdout, fmt.Sprintf("verdict: %s (status %d)\n", test.word, test.status)) || !strings.Contains(e.stderr, test.says) {
			t.Errorf("%s: status %d\n%s%s", test.word, e.status, e.stdout, e.stderr)
		}
		written := alone.run(t, dir, append(args, "--write-reference", folder+".toml", "--prometheus", folder+".prom")...)
		_, err := os.Stat(filepath.Join(dir, folder+".toml"))
		if refused := errors.Is(err, fs.ErrNotExist); refused != (test.row.Status != verdict.Measured) || written.status != test.status {
			t.Errorf("%s: status %d, reference: %v", test.word, written.status, err)
		}
		metrics, err := os.ReadFile(filepath.Join(dir, folder+".prom"))
		if want := fmt.Sprintf("dynmo_bench_verdict{bench=\"node\",verdict=%q} 1\n", test.word); err != nil || !strings.Contains(string(metrics), want) {
			t.Errorf("%s lacks %s: %v", metrics, want, err)
		}
	}
}

// TestBenchNodeVirtual: the clock is in every output, and a reference of one clock is not for the other.
func TestBenchNodeVirtual(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e := alone.run(t, dir, "bench", "node", "--clock", "virtual", "--seconds", "0.01", "--records", "records", "--page", "page.html", "--prometheus", "node.prom", "--write-reference", "ref.toml")
	if e.status != exitDone || !strings.Contains(e.stdout, "\nclock: virtual, the CPU time of one thread\n") || !strings.Contains(e.stderr, "writes ref.toml. A bound is 0.8 of the median speed") {
		t.Fatalf("status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
	for file, want := range map[string]string{"page.html": "The clock was virtual", "node.prom": `check="triad",clock="virtual",unit="GB/s"`, "ref.toml": `clock = "virtual"`} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), want) || strings.Contains(string(text), "counts if others took") {
			t.Errorf("%s lacks %s: %v\n%s", file, want, err, text)
		}
	}
	e = alone.run(t, dir, "bench", "node", "--judge", "records", "--reference", "ref.toml")
	if e.status != exitDone || !strings.HasSuffix(e.stdout, "verdict: healthy (status 0)\n") {
		t.Errorf("its own reference: status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
	text, err := os.ReadFile(filepath.Join(dir, "ref.toml"))
	expect.OK(t, err)
	expect.OK(t, os.WriteFile(filepath.Join(dir, "wall.toml"), []byte(strings.ReplaceAll(string(text), "clock = \"virtual\"\n", "")), 0o600))
	e = alone.run(t, dir, "bench", "node", "--judge", "records", "--reference", "wall.toml")
	if e.status != 4 || !strings.Contains(e.stderr, "measured with --clock virtual, and the bound of wall.toml is for --clock wall") {
		t.Errorf("a reference of the wall clock: status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
}

// TestBenchNodeUnwritten: an output that cannot be written changes no healthy node to a slow one.
func TestBenchNodeUnwritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	expect.OK(t, os.Mkdir(filepath.Join(dir, "records"), 0o700))
	var lines bytes.Buffer
	expect.OK(t, writeLines(&lines, []verdict.Row{
		{Node: "a", Device: "host", Model: "M", Check: "triad", Value: 11, Unit: "GB/s", Status: verdict.Measured}, {Node: "a", Status: verdict.Ended}}))
	expect.OK(t, os.WriteFile(filepath.Join(dir, "records", "a.0.jsonl"), lines.Bytes(), 0o600))
	for _, flag := range []string{"--prometheus", "--page", "--write-reference"} {
		e := alone.run(t, dir, "bench", "node", "--judge", "records", flag, "/dev/full")
		if e.status != 3 || !strings.Contains(e.stderr, flag+": write /dev/full: no space left on device") {
			t.Errorf("%s: status %d\n%s", flag, e.status, e.stderr)
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	expect.OK(t, err)
	defer full.Close()
	c := alone.command(t, dir, "bench", "node", "--judge", "records")
	c.Stdout = full
	if err := c.Run(); c.ProcessState == nil || c.ProcessState.ExitCode() != 3 {
		t.Errorf("the table: %v", err)
	}
}

// TestBenchNodeOnABusyHost loads all cores: the host is not judged, and no reference is written.
func TestBenchNodeOnABusyHost(t *testing.T) {
	var stop atomic.Bool
	defer stop.Store(true)
	for range runtime.NumCPU() {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	dir := t.TempDir()
	e := alone.run(t, dir, "bench", "node", "--seconds", "0.3", "--write-reference", "ref.toml", "--prometheus", "node.prom")
	if e.status != 4 || !strings.Contains(e.stdout, "\nBUSY ") || !strings.HasSuffix(e.stdout, "verdict: cannot judge (status 4)\n") {
		t.Errorf("status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "ref.toml")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(e.stderr, "ref.toml: not written, because hosts were busy: "+nodeName()) {
		t.Errorf("the reference: %v\n%s", err, e.stderr)
	}
}

// TestNVIDIAOnPCI: GPUs of another maker, other devices and GPUs for virtual machines do not count.
func TestNVIDIAOnPCI(t *testing.T) {
	sys := t.TempDir()
	for _, d := range []struct{ address, vendor, class, driver string }{
		{"0000:01:00.0", "0x10de", "0x030200", "nvidia"},
		{"0000:02:00.0", "0x10de", "0x030000", ""},
		{"0000:03:00.0", "0x10de", "0x030200", "vfio-pci"},
		{"0000:04:00.0", "0x10de", "0x068000", "nvidia-nvswitch"},
		{"0000:05:00.0", "0x1002", "0x030000", "amdgpu"},
	} {
		folder := filepath.Join(sys, "bus/pci/devices", d.address)
		expect.OK(t, os.MkdirAll(folder, 0o700))
		expect.OK(t, os.WriteFile(filepath.Join(folder, "vendor"), []byte(d.vendor+"\n"), 0o600))
		expect.OK(t, os.WriteFile(filepath.Join(folder, "class"), []byte(d.class+"\n"), 0o600))
		if d.driver != "" {
			expect.OK(t, os.Symlink("../../drivers/"+d.driver, filepath.Join(folder, "driver")))
		}
	}
	if got := fmt.Sprint(nvidiaOnPCI(sys)); got != "[0000:01:00.0 0000:02:00.0]" {
		t.Errorf("found %s", got)
	}
}

// TestHealthDrainsAtOneAlone runs jobs/health.sh with a stand-in for dynmo that ends with a status.
func TestHealthDrainsAtOneAlone(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../../../jobs/health.sh")
	expect.OK(t, err)
	var drained []string // by status, the file that scontrol's stand-in writes
	for status := range 6 {
		dir := t.TempDir()
		program := func(name, text string) string {
			path := filepath.Join(dir, name)
			expect.OK(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700))
			return path
		}
		drained = append(drained, filepath.Join(dir, "drained"))
		program("scontrol", "echo \"$*\" >"+drained[status]+"\n")
		cmd := exec.Command(script)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "DYNMO_HEALTH_ENV=/dev/null", "SLURMD_NODENAME=n1",
			"DYNMO="+program("dynmo", fmt.Sprintf("echo 'dynmo bench node: warning: w' >&2; echo 'dynmo: triad 9 < 10 GB/s: why' >&2; exit %d\n", status)))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("status %d of dynmo: %v\n%s", status, err, out)
		}
		if said := status >= 2; said != strings.Contains(string(out), "why") || !said && len(out) > 0 {
			t.Errorf("status %d: said %q", status, out)
		}
	}
	const want = "update NodeName=n1 State=DRAIN Reason=dynmo: triad 9 < 10 GB/s: why\n"
	var text []byte
	for end := time.Now().Add(20 * time.Second); string(text) != want && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		text, _ = os.ReadFile(drained[1])
	}
	if string(text) != want {
		t.Errorf("status 1: %q, want %q", text, want)
	}
	time.Sleep(2 * time.Second) // the script drains after a second
	for status, path := range drained {
		if text, err := os.ReadFile(path); status != 1 && err == nil {
			t.Errorf("status %d drained: %s", status, text)
		}
	}
}

// fails checks that the last line of a bench's errors names a node.
func fails(t *testing.T, e ended, want string) {
	t.Helper()
	if e.status != exitFailure || !strings.Contains(e.stderr, want) {
		t.Errorf("status %d, errors %q, want %q", e.status, e.stderr, want)
	}
}

func TestBenchNodeRefuses(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--seconds", "0"}, "--seconds 0: want above 0"},
		{[]string{"--rounds", "3"}, "--rounds: has no effect"},
		{[]string{"--quick", "--burn", "1s"}, "--quick looks at this machine alone"},
		{[]string{"--folder", "absent"}, "--folder absent: want a folder"},
		{[]string{"--reference", "absent.toml"}, "absent.toml"},
		{[]string{"--judge", "absent"}, "absent"},
		{[]string{"--compare", "absent"}, "absent"},
		{[]string{"--small", "--write-reference", "r.toml"}, "rates of --small mean nothing: want no --reference and no --write-reference"},
		{[]string{"--small", "--reference", "r.toml"}, "rates of --small mean nothing"},
		{[]string{"--nodes", "a"}, "--nodes: want --judge"},
		{[]string{"--prometheus", "absent/x.prom"}, "--prometheus: open absent/x.prom: no such file or directory"},
		{[]string{"--prometheus", "."}, "--prometheus: .: a directory, want a file"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			alone.run(t, t.TempDir(), append([]string{"bench", "node"}, test.args...)...).refused(t, exitUsage, test.want)
		})
	}
	t.Run("pairs on one host", func(t *testing.T) {
		two := world{2}
		two.need(t)
		t.Parallel()
		two.run(t, t.TempDir(), "bench", "pairs").refused(t, exitUsage, "both processes run on "+nodeName()+": start one on each of at least 2 nodes")
	})
	t.Run("pairs alone", func(t *testing.T) {
		t.Parallel()
		alone.run(t, t.TempDir(), "bench", "pairs").refused(t, exitUsage, "bench pairs wants several nodes")
	})
}
