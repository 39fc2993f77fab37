package comm

import (
	"math"
	"slices"
	"testing"

	"dynmo/src/tensor"
)

// TestPackKeepsBits: what comes out has the bits that went in, from any
// alignment, and shares memory with neither side.
func TestPackKeepsBits(t *testing.T) {
	bits64 := []uint64{0, 1 << 63, 1, 0x7ff0_0000_0000_0000, 0x7ff8_0000_0000_beef, 0xfff0_0000_0000_0001, math.MaxUint64}
	var doubles []float64
	for _, x := range bits64 {
		doubles = append(doubles, math.Float64frombits(x))
	}
	got := carry(t, doubles, 8)
	for i, x := range bits64 {
		if y := math.Float64bits(got[i]); y != x {
			t.Errorf("float64 %#x came out as %#x", x, y)
		}
	}
	bits32 := []uint32{0, 1 << 31, 1, 0x7f80_0001, 0xffc0_beef}
	var singles []float32
	for _, x := range bits32 {
		singles = append(singles, math.Float32frombits(x))
	}
	for i, y := range carry(t, singles, 4) {
		if math.Float32bits(y) != bits32[i] {
			t.Errorf("float32 %#x came out as %#x", bits32[i], math.Float32bits(y))
		}
	}
	if got := carry(t, bits32, 4); !slices.Equal(got, bits32) {
		t.Errorf("%v came out as %v", bits32, got)
	}
	if got := carry(t, []int64{}, 8); len(got) != 0 {
		t.Errorf("nothing came out as %v", got)
	}
}

// carry packs v, spoils the memory it was packed from, moves the bytes to an
// odd address and unpacks them there.
func carry[T tensor.Element](t *testing.T, v []T, size int) []T {
	t.Helper()
	from := slices.Clone(v)
	b := Pack(from)
	clear(from)
	if len(b) != size*len(v) {
		t.Fatalf("%d numbers are packed into %d bytes, want %d", len(v), len(b), size*len(v))
	}
	moved := append(make([]byte, 1, 1+len(b)), b...)[1:]
	out := Unpack[T](moved)
	clear(moved)
	return out
}

func TestUnpackRefusesPartsOfNumbers(t *testing.T) {
	for _, n := range []int{1, 7, 9} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d bytes were unpacked as float64", n)
				}
			}()
			Unpack[float64](make([]byte, n))
		}()
	}
}
