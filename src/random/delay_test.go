package random

import (
	"math"
	"testing"
)

// TestDelayIsHalfNormal: mean, median and the share at the limit are those of the truncated
// half-normal distribution.
func TestDelayIsHalfNormal(t *testing.T) {
	const n, most = 200_000, 4
	sum, below, full := 0.0, 0, 0
	for i := range uint64(n) {
		d := Delay(most, 7, i)
		if d < 1 || d > most {
			t.Fatalf("delay %v, want it in [1, %v]", d, most)
		}
		sum += d
		if d < 1+(most-1)*0.674489750196/3 { // the half-normal's median, in thirds
			below++
		}
		if d == most {
			full++
		}
	}
	// E min(|x|, 3) = sqrt(2/π)·(1 - exp(-9/2)) + 3·P(|x| > 3), P = 0.0026998.
	mean := 1 + (most-1)/3.0*(math.Sqrt(2/math.Pi)*(1-math.Exp(-4.5))+3*0.0026998)
	for _, f := range []struct {
		what      string
		got, want float64
		five      float64 // five standard errors
	}{
		{"mean", sum / n, mean, 5 * 0.6 / math.Sqrt(n)},
		{"share below the median", float64(below) / n, 0.5, 5 * 0.5 / math.Sqrt(n)},
		{"share at the limit", float64(full) / n, 0.0026998, 5 * math.Sqrt(0.0026998/n)},
	} {
		if math.Abs(f.got-f.want) > f.five {
			t.Errorf("%s %v, want %v within %v", f.what, f.got, f.want, f.five)
		}
	}
}

func TestDelayRepeats(t *testing.T) {
	if a, b := Delay(4, 1, 2, 3), Delay(4, 1, 2, 3); a != b {
		t.Errorf("equal keys give %v and %v", a, b)
	}
	if a, b := Delay(4, 1, 2, 3), Delay(4, 1, 2, 4); a == b {
		t.Errorf("keys that differ both give %v", a)
	}
	for _, most := range []float64{1, 0, math.NaN()} {
		if d := Delay(most, 1); d != 1 {
			t.Errorf("at most %v: %v, want 1", most, d)
		}
	}
}

func TestDelayAllocatesNothing(t *testing.T) {
	var n uint64
	if per := testing.AllocsPerRun(100, func() { n++; Delay(4, 1, 2, 3, 4, n) }); per != 0 {
		t.Errorf("%v allocations", per)
	}
}
