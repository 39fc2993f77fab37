package partitiontest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"dynmo/src/expect"
)

// TestRandom: every partition without empty stages is about equally likely. For 6 layers over 3
// stages there are C(5, 2) = 10.
func TestRandom(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2)) // fixed seed: a failure must repeat
	seen := map[string]int{}
	for range 1000 {
		p := Random(draw, 6, 3)
		expect.OK(t, p.Check(6, 3, true))
		seen[fmt.Sprint(p)]++
	}
	if len(seen) != 10 {
		t.Errorf("%d partitions, want 10: %v", len(seen), seen)
	}
	for p, n := range seen {
		if n < 60 || n > 140 { // 100 expected, standard deviation 9.5
			t.Errorf("%s: %d times of 1000, want about 100", p, n)
		}
	}
	for _, size := range []struct{ layers, stages int }{{1, 1}, {4, 1}, {4, 4}} {
		if err := Random(draw, size.layers, size.stages).Check(size.layers, size.stages, true); err != nil {
			t.Error(err)
		}
	}
}
