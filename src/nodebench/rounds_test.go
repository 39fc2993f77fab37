package nodebench

import (
	"math"
	"testing"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

func near(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// TestPairsCancelDrift: a machine that becomes three times slower in the third of five rounds
// changes rates, but no ratio.
func TestPairsCancelDrift(t *testing.T) {
	s := spans{{2, 2, 6, 6, 6}, {1, 1, 3, 3, 3}}
	if got := s.ratio(0, 1, 10); got != (estimate{20, 20, 20}) {
		t.Errorf("ratio %+v, want 20 without spread", got)
	}
	if got := s.rate(1, 6); got.median != 2 || got.low != 2 || got.high < 3 {
		t.Errorf("rate %+v, want 2 to more than 3", got)
	}
}

func TestEstimated(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   estimate
	}{
		{nil, estimate{}},
		{[]float64{3}, estimate{median: 3}},
		{[]float64{4, 1, 3, 2}, estimate{2.5, 1, 3}},
		{[]float64{5, 5, 5}, estimate{5, 5, 5}},
	} {
		if got := estimated(c.values); !near(got.median, c.want.median) || !near(got.low, c.want.low) || !near(got.high, c.want.high) {
			t.Errorf("%v: got %+v, want %+v", c.values, got, c.want)
		}
	}
}

// TestRoundsAlternate: calls alternate. A short call is repeated until it has its share of a round,
// and its seconds are those of one call.
func TestRoundsAlternate(t *testing.T) {
	clock := device.NewVirtual()
	b := newBench(ref.New(tensor.F32), devcpu.New(clock))
	var order []byte
	spans := b.rounds(Rounds{Count: 2},
		func() { order = append(order, 'A'); clock.Advance(9) },
		func() { order = append(order, 'b'); clock.Advance(1) },
		func() { order = append(order, 'c') })
	if want := "AbcAbbccccccccccccccccAbbcccccccccccccccc"; string(order) != want {
		t.Errorf("calls %s, want %s", order, want)
	}
	if ratio := spans.ratio(0, 1, 1).median; math.Abs(ratio-9) > 0.5 {
		t.Errorf("ratio %v, want 9", ratio)
	}
}
