package random

import (
	"math"
	"testing"
)

func TestKeyedRepeats(t *testing.T) {
	a, b := Keyed(7, 3, 5), Keyed(7, 3, 5)
	for range 100 {
		if x, y := a.Uint64(), b.Uint64(); x != y {
			t.Fatalf("equal keys draw %x and %x", x, y)
		}
	}
}

// TestKeyedIsPinned: streams never change, because old checkpoints and loss curves depend on them.
func TestKeyedIsPinned(t *testing.T) {
	for _, tc := range []struct {
		key  []uint64
		want uint64 // drawn when the function was written
	}{
		{nil, 0xaab5003bc0ccbcc4},
		{[]uint64{0}, 0x34c409062d921f7e},
		{[]uint64{1, 2, 3}, 0x5bbd4dc6f12f614a},
	} {
		if got := Keyed(tc.key...).Uint64(); got != tc.want {
			t.Errorf("key %v draws %#x, want %#x", tc.key, got, tc.want)
		}
	}
}

// TestKeyedDiffers: keys that differ in one number, their order or their length give other streams.
func TestKeyedDiffers(t *testing.T) {
	seen := map[uint64][]uint64{}
	add := func(key ...uint64) {
		x := Keyed(key...).Uint64()
		if other, taken := seen[x]; taken {
			t.Fatalf("keys %v and %v draw the same", other, key)
		}
		seen[x] = key
	}
	add()
	for a := range uint64(20) {
		add(a)
		for b := range uint64(20) {
			add(a, b)
			for c := range uint64(20) {
				add(a, b, c)
			}
		}
	}
}

// TestKeyedIsUniform: the first numbers of many neighbouring keys have the mean and the variance of
// uniform numbers. Neighbours do not correlate.
func TestKeyedIsUniform(t *testing.T) {
	const n = 100_000
	mean, square, product, last := 0.0, 0.0, 0.0, 0.5
	for i := range uint64(n) {
		x := Keyed(1, i).Float64() - 0.5
		mean += x / n
		square += x * x / n
		product += x * last / n
		last = x
	}
	// Five standard errors of n uniform numbers on [-1/2, 1/2): σ² is 1/12, the variance of x² is
	// 1/180, and that of a product is 1/144.
	five := func(variance float64) float64 { return 5 * math.Sqrt(variance/n) }
	if math.Abs(mean) > five(1.0/12) || math.Abs(square-1.0/12) > five(1.0/180) || math.Abs(product) > five(1.0/144) {
		t.Errorf("mean %v, variance %v, correlation %v", mean, square, 12*product)
	}
}
