package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// TestSimulatedDoesNotResume: the records of a simulated run are not cut off to make room for a run
// that begins at step 0.
func TestSimulatedDoesNotResume(t *testing.T) {
	for clock, refused := range map[string]bool{Simulated: true, "wall": false} {
		dir := filepath.Join(t.TempDir(), "run")
		r, err := Open(dir, "", Provenance{})
		expect.OK(t, err)
		expect.OK(t, r.Step(Metrics{Clock: clock}))
		expect.OK(t, r.Close())
		before, err := os.ReadFile(filepath.Join(dir, MetricsFile))
		expect.OK(t, err)
		r, _, err = Resume(dir, "", Provenance{}, From{})
		if refused {
			if err == nil || !strings.Contains(err.Error(), "simulate") {
				t.Errorf("%v", err)
			}
			after, err := os.ReadFile(filepath.Join(dir, MetricsFile))
			expect.OK(t, err)
			if string(after) != string(before) {
				t.Errorf("%q became %q", before, after)
			}
			continue
		}
		expect.OK(t, err)
		expect.OK(t, r.Close())
	}
}
