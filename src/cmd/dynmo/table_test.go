package main

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/record"
)

// TestTableOfADivergedRun: a loss that is no number is shown as such, not as 0.
func TestTableOfADivergedRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	run, err := record.Open(dir, config.Default().TOML(), record.Provenance{})
	expect.OK(t, err)
	for step, loss := range []float64{5.5, math.NaN()} {
		expect.OK(t, run.Step(record.Metrics{Step: step, Clock: "virtual", Loss: record.Float(loss), StepSeconds: 1}))
	}
	expect.OK(t, run.Close())
	if out := said(t, "table", dir); !strings.Contains(out, " NaN ") {
		t.Errorf("no NaN in\n%s", out)
	}
}
