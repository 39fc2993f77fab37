// Package expect is for tests: in goes the result of a step without which a
// test cannot go on, or a text and the golden file that it should equal.
package expect

import (
	"flag"
	"os"
	"testing"

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
