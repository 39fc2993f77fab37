package data

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// element is the type of a token id in a file. Its value is Megatron-LM's code if that has one.
type element uint8

const (
	u8  element = 1
	i8  element = 2
	i16 element = 3
	i32 element = 4
	i64 element = 5
	u16 element = 8
	u32 element = 16 // llm.c only
)

// elements describes the element types; width is in bytes, 0 for an unused code.
var elements = [...]struct {
	name   string
	width  int
	signed bool
}{
	u8: {"u8", 1, false}, u16: {"u16", 2, false}, u32: {"u32", 4, false},
	i8: {"i8", 1, true}, i16: {"i16", 2, true}, i32: {"i32", 4, true}, i64: {"i64", 8, true},
}

func (e element) width() int { return elements[e].width }

// ids are token ids in the form of a file: consecutive little-endian elements of one type. The
// length of raw is a multiple of the width.
type ids struct {
	raw []byte
	element
}

// hash returns the SHA-256 of the ids in the form of the file.
func (x ids) hash() string {
	sum := sha256.Sum256(x.raw)
	return hex.EncodeToString(sum[:])
}

func (x ids) count() int { return len(x.raw) / x.width() }

// id returns the id at index i.
func (x ids) id(i int) int64 {
	b := x.raw[i*x.width():]
	switch x.element {
	case u8:
		return int64(b[0])
	case i8:
		return int64(int8(b[0]))
	case u16:
		return int64(binary.LittleEndian.Uint16(b))
	case i16:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case u32:
		return int64(binary.LittleEndian.Uint32(b))
	case i32:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	case i64:
		return int64(binary.LittleEndian.Uint64(b))
	}
	panic("data: unknown element type")
}

// copyTo fills dst with the ids from index i on.
func (x ids) copyTo(dst []int32, i int) {
	for j := range dst {
		dst[j] = int32(x.id(i + j))
	}
}

// span returns the smallest and the largest id; 0 and -1 if there are none.
func (x ids) span() (low, high int64) {
	if len(x.raw) == 0 {
		return 0, -1
	}
	low = x.id(0)
	high = low
	for i := range x.count() {
		id := x.id(i)
		low, high = min(low, id), max(high, id)
	}
	return low, high
}

// outside returns the index of the first id that is not in [0, vocab), or -1.
func (x ids) outside(vocab int) int {
	if !elements[x.element].signed && int64(vocab) >= 1<<(8*x.width()) {
		return -1
	}
	for i := range x.count() {
		if uint64(x.id(i)) >= uint64(vocab) {
			return i
		}
	}
	return -1
}

// limit returns the ids in the first `bytes` bytes; 0 means all.
func (x ids) limit(bytes int64) ids {
	if bytes > 0 && bytes < int64(len(x.raw)) {
		x.raw = x.raw[:bytes/int64(x.width())*int64(x.width())]
	}
	return x
}

// appendID appends an id to raw.
func (e element) appendID(raw []byte, id int32) []byte {
	switch e.width() {
	case 2:
		return binary.LittleEndian.AppendUint16(raw, uint16(id))
	case 4:
		return binary.LittleEndian.AppendUint32(raw, uint32(id))
	}
	panic("data: no writer writes ids of this width")
}

// broken returns the error of a malformed file, with the byte.
func broken(file string, position int64, format string, args ...any) error {
	return fmt.Errorf("%s: byte %d: %s", file, position, fmt.Sprintf(format, args...))
}
