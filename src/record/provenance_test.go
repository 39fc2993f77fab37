package record

import (
	"os"
	"runtime/debug"
	"testing"
	"time"

	"dynmo/src/expect"
)

func TestHereIsComplete(t *testing.T) {
	p := Here(true)
	for name, value := range map[string]string{
		"revision": p.Revision, "go": p.Go, "platform": p.Platform, "host": p.Host, "cpu": p.CPU,
	} {
		if value == "" {
			t.Errorf("%s is empty", name)
		}
	}
	if _, err := time.Parse(time.RFC3339, p.Date); err != nil {
		t.Error(err)
	}
	if p.Cores < 1 || !p.MPI || len(p.Command) != len(os.Args) {
		t.Errorf("provenance %+v", p)
	}
}

func TestRevision(t *testing.T) {
	for _, c := range []struct {
		settings []debug.BuildSetting
		want     string
	}{
		{nil, "unknown"},
		{[]debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}, "abc"},
		{[]debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}, "abc+dirty"},
	} {
		if got := revision(c.settings); got != c.want {
			t.Errorf("%v: got %s, want %s", c.settings, got, c.want)
		}
	}
}

func TestProvenanceAsBenchmarkConfiguration(t *testing.T) {
	p := Provenance{Revision: "abc", Go: "go1.26", Platform: "linux/amd64", Host: "node1", CPU: "A CPU", Cores: 2,
		Kernels: "cpu avx2 OpenBLAS", Date: "2025-01-02T03:04:05Z", Command: []string{"dynmo", "bench"}}
	expect.Golden(t, "testdata/provenance.txt", p.String())
}
