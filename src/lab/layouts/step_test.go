package layouts

import (
	"math"
	"math/rand/v2"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// TestStepIsTheSimulators holds the stepper to package sim on random costs.
func TestStepIsTheSimulators(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		kind := []schedule.Kind{schedule.KindGPipe, schedule.Kind1F1B, schedule.KindInterleaved, schedule.KindZBH1, schedule.KindZBV, schedule.KindZBInterleaved}[rnd.IntN(6)]
		stages, chunks := 1+rnd.IntN(5), 1
		switch kind {
		case schedule.KindInterleaved, schedule.KindZBInterleaved:
			chunks = 2 + rnd.IntN(3)
		case schedule.KindZBV:
			chunks = 2
		}
		s, err := schedule.New(kind, stages, chunks, stages*(1+rnd.IntN(4)))
		if err != nil {
			t.Fatal(err)
		}
		costs := make([]cost.Stage, s.Map.Virtual())
		bytes := make([]int64, len(costs))
		for v := range costs {
			costs[v] = cost.Stage{Forward: 1 + rnd.Float64(), Input: 1 + rnd.Float64(), Weight: 1 + rnd.Float64()}
			bytes[v] = 1
		}
		lag := float64(rnd.IntN(2)) * rnd.Float64()
		want := sim.Run(sim.Step{Schedule: s, Costs: costs, Bytes: bytes, Network: sim.Uniform(lag, 0)}).End
		if got := newStepper(s).seconds(costs, lag); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s on %d x %d, messages %v: %v s, want %v", kind, stages, chunks, lag, got, want)
		}
	}
}
