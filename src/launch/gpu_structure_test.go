//go:build cuda && cgo

package launch

import (
	"testing"
)

// TestBlocksOnGPU: law 1 and law 2 of layers that are pruned by blocks and stored as them,
// in bfloat16: on one stage and on three whose layers move, and after a resume on two, the
// bits are the same.
func TestBlocksOnGPU(t *testing.T) {
	c := structured(t, "block32", "radix")
	c.Device.Kind, c.Device.Precision, c.Device.Share = "cuda", "bf16", true
	c.Assign("prune.csr_from", "0.3")
	still := goRun(t, c, nil)
	c.Parallel.Stages = 3
	moved := goRun(t, c, scatter(3))
	if at := moved.difference(still); at != "" {
		t.Errorf("differs from one stage at %s", at)
	}
	saved := part{dir: t.TempDir(), stop: 7}
	first, _ := trainPart(t, c, saved)
	c.Parallel.Stages = 2
	then, _ := trainPart(t, c, part{from: saved.dir})
	if at := joined(first, then).difference(still); at != "" {
		t.Errorf("differs after a resume at %s", at)
	}
}
