package main

import (
	"math"
	"strings"
	"testing"

	"dynmo/src/record"
)

// TestTableOfADivergedRun: a loss that is no number is shown as such, not as 0.
func TestTableOfADivergedRun(t *testing.T) {
	dir := recorded(t, record.Metrics{Clock: "virtual", Loss: 5.5, StepSeconds: 1},
		record.Metrics{Step: 1, Clock: "virtual", Loss: record.Float(math.NaN()), StepSeconds: 1})
	if out := said(t, "table", dir); !strings.Contains(out, " NaN ") {
		t.Errorf("no NaN in\n%s", out)
	}
}
