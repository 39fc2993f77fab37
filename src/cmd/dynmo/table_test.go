package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/record"
)

// TestTableOfADivergedRun: a loss that is no number is shown as such, not as 0.
func TestTableOfADivergedRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	run, err := record.Open(dir, config.Default().TOML(), record.Provenance{})
	if err != nil {
		t.Fatal(err)
	}
	for step, loss := range []float64{5.5, math.NaN()} {
		if err := run.Step(record.Metrics{Step: step, Clock: "virtual", Loss: record.Float(loss), StepSeconds: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c := tableCommand()
	c.SetOut(&out)
	c.SetArgs([]string{dir})
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), " NaN ") {
		t.Errorf("no NaN in\n%s", &out)
	}
}
