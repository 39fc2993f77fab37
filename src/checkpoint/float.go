package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"

	"dynmo/src/tensor"
)

// typeNames holds what PyTorch, and so Hugging Face's configurations, call the types of
// weights.
var typeNames = map[DType]string{F32: "float32", BF16: "bfloat16", F16: "float16"}

// Stored returns the type that weights can be written as, by PyTorch's name: float32 or
// bfloat16.
func Stored(name string) (DType, error) {
	for _, d := range []DType{F32, BF16} {
		if typeNames[d] == name {
			return d, nil
		}
	}
	return "", fmt.Errorf("%.100q, want %s or %s", name, typeNames[F32], typeNames[BF16])
}

// floats returns elements [lo, hi) of a tensor of float32, bfloat16 or float16, each of
// which is a float32.
func (f *File) floats(t Tensor, lo, hi int64) ([]byte, error) {
	if t.DType == F32 {
		return f.part(t, 4*lo, 4*hi)
	}
	halves, err := f.part(t, 2*lo, 2*hi)
	if err != nil {
		return nil, err
	}
	widen := tensor.FromBF16
	if t.DType == F16 {
		widen = fromF16
	}
	values := make([]byte, 2*len(halves))
	for i := range len(halves) / 2 {
		x := widen(binary.LittleEndian.Uint16(halves[2*i:]))
		binary.LittleEndian.PutUint32(values[4*i:], math.Float32bits(x))
	}
	return values, nil
}

// as returns values of float32 as those of another type, the nearest ones, of two the
// even one.
func (d DType) as(values []byte) []byte {
	if d == F32 {
		return values
	}
	halves := make([]byte, len(values)/2)
	for i := range len(values) / 4 {
		x := math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:]))
		binary.LittleEndian.PutUint16(halves[2*i:], tensor.ToBF16(x))
	}
	return halves
}

// fromF16 returns the number with these bits in IEEE 754 binary16.
func fromF16(bits uint16) float32 {
	sign, exponent, fraction := uint32(bits>>15)<<31, uint32(bits>>10&31), uint32(bits&1023)
	switch exponent {
	case 0: // zero, or below the normal numbers: fraction · 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)/(1<<24)))
	case 31: // infinite, or no number
		exponent = 255 - 112
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
