package comm

import (
	"unsafe"

	"dynmo/src/tensor"
)

// Pack copies numbers into the bytes of a message, bit for bit, in the byte
// order of this machine: all ranks run one binary.
func Pack[T tensor.Element](v []T) []byte {
	return append([]byte(nil), tensor.Of[byte](tensor.From(v))...)
}

// Unpack copies the numbers out of bytes that Pack gave, bit for bit. It
// panics where the bytes end inside a number: a message of another kind.
func Unpack[T tensor.Element](b []byte) []T {
	var t T
	size := int(unsafe.Sizeof(t))
	if len(b)%size != 0 {
		panic("comm: Unpack of bytes that end inside a number")
	}
	v := make([]T, len(b)/size)
	copy(tensor.Of[byte](tensor.From(v)), b) // through v: b need not be aligned for T
	return v
}
