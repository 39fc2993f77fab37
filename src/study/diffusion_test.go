package study

import (
	"testing"

	"dynmo/src/expect"
)

// TestDiffusionGaps: diffusion reaches what it is to reach in every family.
func TestDiffusionGaps(t *testing.T) {
	gaps, err := DiffusionGaps(1)
	expect.OK(t, err)
	if len(gaps) != 6 {
		t.Fatalf("%d families, want 6", len(gaps))
	}
	for _, g := range gaps {
		if g.Chains != len(widths)*len(ratios) || g.P95 < 1 || g.P95 > 1.02 || g.Max < g.P95 || g.Max > 1.06 {
			t.Errorf("%+v, want p95 of at most 1.02 and no more than 1.06 on %d chains", g, len(widths)*len(ratios))
		}
	}
	if _, err := DiffusionGaps(0); err == nil {
		t.Error("no chains are judged")
	}
}
