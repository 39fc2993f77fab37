// Package expect is for tests: in goes the result of a step without which a
// test cannot go on, or a text and the golden file that it should equal.
package expect

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata")

// OK ends the test if err is one.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Tree writes files, by name, into a new directory and returns the directory.
func Tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		OK(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// Read returns the content of a file.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	OK(t, err)
	return raw
}

// Golden compares a text with a file, or rewrites the file with -update.
func Golden(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		OK(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	OK(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s, with - for the file (go test -update rewrites it):\n%s", file, diff)
	}
}

// Fault is what the test of a fault finds. At its end the test logs it as one line:
//
//	FAULT F04 phase=rename rank=2 PASS detect=0.8s recover=3.1s lost_steps=4
type Fault struct {
	// Detect is the time from the fault, or from the last step recorded before it, to the
	// end of the run's last process; 0 where nothing ends.
	Detect time.Duration
	// Recover is the time that the command took which went on, from its start to its end; 0
	// where nothing has to go on.
	Recover time.Duration
	// Lost is how many steps had been recorded and were run again.
	Lost int
}

// NewFault returns the Fault of a test. id is its kind, such as F04, and where says which
// of that kind it is, such as phase=rename rank=2; for "" the test's name does.
func NewFault(t testing.TB, id, where string) *Fault {
	f := &Fault{}
	if where == "" {
		where = "test=" + t.Name()
	}
	t.Cleanup(func() {
		verdict := "PASS"
		if t.Failed() {
			verdict = "FAIL"
		} else if t.Skipped() {
			verdict = "SKIP"
		}
		t.Log(f.line(id, where, verdict))
	})
	return f
}

func (f *Fault) line(id, where, verdict string) string {
	text := "FAULT " + id + " " + where + " " + verdict
	if f.Detect > 0 {
		text += fmt.Sprintf(" detect=%.1fs", f.Detect.Seconds())
	}
	if f.Recover > 0 {
		text += fmt.Sprintf(" recover=%.1fs lost_steps=%d", f.Recover.Seconds(), f.Lost)
	}
	return text
}

// Launcher returns the variables with which mpirun starts more ranks than cores, as root too, and
// in a container. bench/mpi.sh has the same ones, and says what each is for.
func Launcher() []string {
	return []string{
		"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_MCA_hwloc_base_binding_policy=none",
		"PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe", "PRTE_MCA_mapby=:oversubscribe",
		"PRTE_MCA_hwloc_default_binding_policy=none", "PRTE_MCA_bindto=none",
		"OMPI_MCA_mpi_yield_when_idle=1", "OMPI_MCA_reachable=weighted",
		"OMPI_MCA_btl_vader_single_copy_mechanism=none", "OMPI_MCA_smsc=^cma",
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
	}
}
