package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		"--page", "page.html", "--prometheus", "node.prom", "--write-reference", "ref.toml", "--burn", "10ms")
	if e.status != exitDone {
		t.Fatalf("status %d\n%s%s", e.status, e.stdout, e.stderr)
	}
	found := map[string]verdict.Finding{}
	for _, f := range decodedLines[verdict.Finding](t, e.stdout) {
		found[f.Check] = f
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
	for file, want := range map[string]string{"page.html": "triad", "node.prom": `check="triad"`, "ref.toml": `check = "triad"`} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s: %v", file, want, err)
		}
	}
	e = alone.run(t, dir, "bench", "node", "--judge", "records", "--nodes", nodeName()+",elsewhere")
	fails(t, e, "elsewhere: node answer: the node did not answer")
	const high = "[[bound]]\nmodel = \"\\u0000\"\ncheck = \"triad\"\nleast = 1e9\nunit = \"GB/s\"\nsource = \"a test\"\n"
	expect.OK(t, os.WriteFile(filepath.Join(dir, "high.toml"), []byte(strings.Replace(high, `\u0000`, found["triad"].Model[:4], 1)), 0o600))
	e = alone.run(t, dir, "bench", "node", "--judge", "records", "--reference", "high.toml")
	fails(t, e, "the reference wants at least 1e+09")
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
		{[]string{"--nodes", "a"}, "--nodes: want --judge"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			t.Parallel()
			alone.run(t, t.TempDir(), append([]string{"bench", "node"}, test.args...)...).refused(t, exitUsage, test.want)
		})
	}
	t.Run("pairs alone", func(t *testing.T) {
		t.Parallel()
		alone.run(t, t.TempDir(), "bench", "pairs").refused(t, exitUsage, "bench pairs wants several nodes")
	})
}
