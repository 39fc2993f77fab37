package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDifferences: a setting without effect has no value, and equal settings are left out, as are those that
// only simulated runs read.
func TestDifferences(t *testing.T) {
	a, b := Default(), Default()
	a.Assign("train.steps", 7, "balance.kind", "uniform")
	b.Assign("train.steps", 9, "balance.kind", "partition")
	b.Balance.Every = "5"
	want := []Difference{
		{"train.steps", []string{"7", "9"}},
		{"balance.kind", []string{`"uniform"`, `"partition"`}},
		{"balance.by", []string{"", `"time"`}},
		{"balance.every", []string{"", "5"}},
		{"repack.kind", []string{"", `"none"`}},
	}
	if diff := cmp.Diff(want, Differences([]Config{a, b})); diff != "" {
		t.Error(diff)
	}
	if got := Differences([]Config{a, a, a}); got != nil {
		t.Errorf("of equal settings: %v", got)
	}
}
