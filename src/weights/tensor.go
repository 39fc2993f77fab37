package weights

import (
	"fmt"
	"math/bits"
	"slices"
)

// DType is the name of an element type in a safetensors file.
type DType string

// Types of weights: IEEE 754 binary32 and binary16, and bfloat16.
const (
	F32  DType = "F32"
	f16  DType = "F16"
	bf16 DType = "BF16"
)

// dtypes lists the format's element types and their bits, in the order of the
// reference implementation (safetensors, tensor.rs): by alignment.
var dtypes = []struct {
	name DType
	bits uint64
}{
	{"BOOL", 8}, {"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8}, {"I8", 8},
	{"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E5M2FNUZ", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E8M0", 8},
	{"I16", 16}, {"U16", 16}, {f16, 16}, {bf16, 16}, {"I32", 32}, {"U32", 32}, {F32, 32},
	{"C64", 64}, {"F64", 64}, {"I64", 64}, {"U64", 64},
}

// place returns the index of d in dtypes, -1 if d is unknown.
func (d DType) place() int {
	for i, t := range dtypes {
		if t.name == d {
			return i
		}
	}
	return -1
}

// Tensor describes one tensor of a file. Its values are bytes [Begin, End) of
// the data that follow the header.
type Tensor struct {
	Name       string
	DType      DType
	Shape      []int64
	Begin, End int64
}

// Bytes returns the bytes of the tensor's values.
func (t Tensor) Bytes() int64 { return t.End - t.Begin }

// size returns the bytes that DType and Shape need. Errors: the type is unknown, the product is
// 2^63 or more, or the bits do not fill whole bytes.
func (t Tensor) size() (int64, error) {
	i := t.DType.place()
	if i < 0 {
		return 0, fmt.Errorf("dtype %.100q is not known", string(t.DType))
	}
	if slices.Contains(t.Shape, 0) {
		return 0, nil
	}
	n := dtypes[i].bits
	for _, s := range t.Shape {
		high, low := bits.Mul64(n, uint64(s))
		if high != 0 {
			return 0, fmt.Errorf("shape %v overflows", t.Shape)
		}
		n = low
	}
	if n%8 != 0 {
		return 0, fmt.Errorf("shape %v of %s ends within a byte", t.Shape, t.DType)
	}
	return int64(n / 8), nil
}
