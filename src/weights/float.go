package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/tensor"
)

// typeNames has the names of PyTorch, and so of Hugging Face's configurations, for the types of
// weights.
var typeNames = map[DType]string{F32: "float32", bf16: "bfloat16", f16: "float16"}

// Stored returns the type of weights with one of PyTorch's names: float32, bfloat16 or float16.
func Stored(name string) (DType, error) {
	list := []DType{F32, bf16, f16}
	var names []string
	for _, d := range list {
		names = append(names, typeNames[d])
	}
	if i := slices.Index(names, name); i >= 0 {
		return list[i], nil
	}
	return "", fmt.Errorf("%.100q, want %s", name, strings.Join(names, ", "))
}

// bytes returns the size of a value of a type of weights.
func (d DType) bytes() int64 { return int64(dtypes[d.place()].bits / 8) }

// convert converts values from one type of weights to the nearest values of another, ties to even.
// The error names a finite value that is outside the range of the other type.
func convert(values []byte, from, to DType) ([]byte, error) {
	if from == to {
		return values, nil
	}
	wide := widened(values, from)
	if to == F32 {
		return wide, nil
	}
	halves := make([]byte, len(wide)/2)
	for i := range len(wide) / 4 {
		x := math.Float32frombits(binary.LittleEndian.Uint32(wide[4*i:]))
		bits := tensor.ToBF16(x)
		if to == f16 {
			if bits = toF16(x); bits&^(1<<15) == infiniteF16 && !math.IsInf(float64(x), 0) {
				return nil, fmt.Errorf("value %v: %s has nothing beyond 65504", x, typeNames[f16])
			}
		}
		binary.LittleEndian.PutUint16(halves[2*i:], bits)
	}
	return halves, nil
}

// widened returns values as float32. The conversion is exact.
func widened(values []byte, from DType) []byte {
	if from == F32 {
		return values
	}
	widen := tensor.FromBF16
	if from == f16 {
		widen = fromF16
	}
	wide := make([]byte, 2*len(values))
	for i := range len(values) / 2 {
		x := widen(binary.LittleEndian.Uint16(values[2*i:]))
		binary.LittleEndian.PutUint32(wide[4*i:], math.Float32bits(x))
	}
	return wide
}

// infiniteF16 is the infinite number in binary16.
const infiniteF16 = 31 << 10

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

// toF16 returns the bits of the nearest number in IEEE 754 binary16, ties to even.
func toF16(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, size := uint16(bits>>31)<<15, bits&^(1<<31)
	switch {
	case x != x:
		return sign | infiniteF16 | 1<<9 | uint16(size>>13)&1023
	case size >= math.Float32bits(65520): // half way between the largest number and the next one
		return sign | infiniteF16
	case size < math.Float32bits(0x1p-14): // below the normal numbers
		return sign | uint16(math.RoundToEven(math.Abs(float64(x))*0x1p24))
	}
	return sign | uint16((size+1<<12-1+size>>13&1)>>13-112<<10)
}
