// Package tensor names memory: element types, spaces and spans. Its values
// are plain; package device allocates the memory they point at, and kernel backends
// panic on a span that lives in the wrong space.
package tensor

import (
	"fmt"
	"math"
	"unsafe"
)

// DType is an element type.
type DType uint8

const (
	F32  DType = iota // IEEE 754 binary32
	F64               // IEEE 754 binary64
	I32               // signed 32-bit integer: tokens, CSR indices
	I64               // signed 64-bit integer: counts
	U64               // unsigned 64-bit integer: words of a bit mask
	BF16              // bfloat16: the upper half of a binary32
)

// Size returns the bytes of one element.
func (d DType) Size() int64 {
	switch d {
	case BF16:
		return 2
	case F32, I32:
		return 4
	case F64, I64, U64:
		return 8
	}
	panic("tensor: unknown element type")
}

// Wide returns the type for sums over many tokens and steps of elements of type d, and for their
// statistics: F32 for BF16, else d.
func (d DType) Wide() DType {
	if d == BF16 {
		return F32
	}
	return d
}

// String returns the name that files and errors use: "f32", "i64", …
func (d DType) String() string {
	return [...]string{"f32", "f64", "i32", "i64", "u64", "bf16"}[d]
}

// Space says which address space a span lives in.
type Space uint8

const (
	Host   Space = iota // addressable by this process
	Device              // addressable by the accelerator only
)

// Mem is a span of memory. The zero Mem is "absent", which optional kernel
// operands (a bias, a mask) use. Bytes is the usable length.
type Mem struct {
	Ptr   unsafe.Pointer
	Bytes int64
	Space Space
}

// IsZero reports whether m is absent.
func (m Mem) IsZero() bool { return m.Ptr == nil }

// Span returns the part of m that begins off bytes in and is bytes long. It
// panics if the part is not inside m.
func (m Mem) Span(off, bytes int64) Mem {
	if off < 0 || bytes < 0 || off+bytes > m.Bytes {
		panic(fmt.Sprintf("tensor: span [%d, %d) outside %d bytes", off, off+bytes, m.Bytes))
	}
	return Mem{unsafe.Add(m.Ptr, off), bytes, m.Space}
}

// Element is the type of a view of a span.
type Element interface {
	~float32 | ~float64 | ~int32 | ~int64 | ~uint32 | ~uint64 | ~uint16 | ~uint8
}

// Of views host memory as a slice of T, without copying. It panics if m is not
// in host memory. An absent Mem gives nil.
func Of[T Element](m Mem) []T {
	if m.Ptr == nil {
		return nil
	}
	if m.Space != Host {
		panic("tensor: host view of device memory")
	}
	var t T
	return unsafe.Slice((*T)(m.Ptr), m.Bytes/int64(unsafe.Sizeof(t)))
}

// From views a Go slice as host memory, without copying. The Mem keeps the
// slice alive. It must not be handed to a transfer that outlives the call;
// device memory is for that.
func From[T Element](s []T) Mem {
	if len(s) == 0 {
		return Mem{}
	}
	return Mem{unsafe.Pointer(&s[0]), int64(len(s)) * int64(unsafe.Sizeof(s[0])), Host}
}

// ToBF16 returns the bits of the bfloat16 nearest to x, the even one of two. It
// keeps a NaN one.
func ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromBF16 returns the number with these bits.
func FromBF16(bits uint16) float32 { return math.Float32frombits(uint32(bits) << 16) }
