package tensor

import (
	"math"
	"testing"
)

func TestBF16(t *testing.T) {
	for _, test := range []struct {
		x    float32
		bits uint16
	}{
		{0, 0}, {1, 0x3f80}, {-2, 0xc000},
		{1 + 1.0/256, 0x3f80},        // half way: the even one is below
		{1 + 3.0/256, 0x3f82},        // half way: the even one is above
		{1 + 1.0/256 + 1e-6, 0x3f81}, // above half way
		{math.MaxFloat32, 0x7f80},    // rounds to infinity
		{float32(math.Inf(-1)), 0xff80},
	} {
		if got := ToBF16(test.x); got != test.bits {
			t.Errorf("ToBF16(%v) = %#x, want %#x", test.x, got, test.bits)
		}
	}
	for bits := range 1 << 16 { // every number keeps its bits
		x := FromBF16(uint16(bits))
		if got := ToBF16(x); x == x && got != uint16(bits) {
			t.Fatalf("%#x becomes %v becomes %#x", bits, x, got)
		}
		if x != x && !math.IsNaN(float64(FromBF16(ToBF16(x)))) {
			t.Fatalf("%#x: no NaN any more", bits)
		}
	}
}
