package launch

import (
	"math"
	"testing"

	"dynmo/src/config"
)

// structured returns small settings that prune by a structure.
func structured(t *testing.T, structure, choose string) config.Config {
	t.Helper()
	c := small(t)
	c.Model.Hidden, c.Model.Blocks, c.Train.Steps = 32, 3, 8
	c.Assign("prune.structure", structure, "prune.select", choose, "prune.times", 2)
	if structure == "2:4" {
		c.Assign("prune.final", 0.5)
	}
	return c
}

// TestStructuresKeepLaw1: pruning by blocks, or to two of four, gives the same bits on one
// stage and on three whose layers move after every step, with two replicas, whichever way
// it selects; and ends on the final sparsity.
func TestStructuresKeepLaw1(t *testing.T) {
	for structure, final := range map[string]float64{"block32": 0.9, "2:4": 0.5} {
		still := goRun(t, structured(t, structure, "radix"), nil)
		if n := len(still.sparsity); n == 0 || math.Abs(still.sparsity[n-1]-final) > 0.02 { // of 36 blocks
			t.Errorf("%s: sparsities %v, want up to %v", structure, still.sparsity, final)
		}
		for _, choose := range []string{"radix", "gather"} {
			c := structured(t, structure, choose)
			c.Parallel.Stages = 3
			moved := goRun(t, c, scatter(3))
			if moved.moves < c.Train.Steps/2 {
				t.Errorf("%s: only %d of %d steps moved layers", structure, moved.moves, c.Train.Steps)
			}
			if at := moved.difference(still); at != "" {
				t.Errorf("%s by %s: differs from one stage at %s", structure, choose, at)
			}
		}
	}
}

// TestStructuresKeepLaw2: a run that was stopped between two prunings goes on with the same
// bits, on another number of stages.
func TestStructuresKeepLaw2(t *testing.T) {
	for _, structure := range []string{"block32", "2:4"} {
		c := structured(t, structure, "radix")
		whole := goRun(t, c, nil)
		dir := t.TempDir()
		trainPart(t, c, part{dir: dir, stop: 3})
		c.Parallel.Stages = 2
		rest, end := trainPart(t, c, part{dir: dir, from: dir})
		if end.Hash != whole.hash {
			t.Errorf("%s: hash %s after a resume, want %s (losses %v, want the end of %v)", structure, end.Hash, whole.hash, rest.losses, whole.losses)
		}
	}
}
