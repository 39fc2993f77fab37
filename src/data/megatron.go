package data

import (
	"encoding/binary"
	"slices"
	"strings"
)

// A Megatron data set (NVIDIA/Megatron-LM, indexed_dataset.py) is PREFIX.bin,
// the ids without a header, and PREFIX.idx:
//
//	 0       9    magic "MMIDIDX\0\0"
//	 9       u64  version, 1
//	17       u8   code of the element type
//	18       u64  S, number of sequences
//	26       u64  D, number of documents + 1
//	34       i32  × S: tokens of each sequence
//	34+4S    i64  × S: first byte of each sequence in PREFIX.bin
//	34+12S   i64  × D: first sequence of each document; the last is S
//
// and, in data sets of several modes, a byte for each sequence, which is not read.
const (
	megatronMagic   = "MMIDIDX\x00\x00"
	megatronOld     = "TNTIDX"
	megatronVersion = 1
	megatronHeader  = 34
)

// megatronTypes are the element types of the format. Their values are the format's codes. Its float
// types (6, 7) have no ids.
var megatronTypes = []element{u8, i8, i16, i32, i64, u16}

// megatronIndex returns the name of the index of PREFIX.bin.
func megatronIndex(bin string) string { return strings.TrimSuffix(bin, ".bin") + ".idx" }

// parseMegatron returns the ids of a Megatron data set, without a copy, and its number of
// documents. bin is the content of PREFIX.bin, idx that of file, PREFIX.idx. Bytes of bin after the
// last sequence are ignored.
func parseMegatron(file string, idx, bin []byte) (ids, int64, error) {
	fail := func(position int64, format string, args ...any) (ids, int64, error) {
		return ids{}, 0, broken(file, position, format, args...)
	}
	size := int64(len(idx))
	switch head := string(idx[:min(size, int64(len(megatronMagic)))]); {
	case strings.HasPrefix(head, megatronOld):
		return fail(0, "an index of the old format %s, which is not read: write the data set anew with Megatron's preprocess_data.py", megatronOld)
	case !strings.HasPrefix(megatronMagic, head):
		return fail(0, "magic %q, want %q", head, megatronMagic)
	case size < megatronHeader:
		return fail(size, "the file ends inside the header of %d bytes", megatronHeader)
	}
	if v := binary.LittleEndian.Uint64(idx[9:]); v != megatronVersion {
		return fail(9, "version %d, want %d", v, megatronVersion)
	}
	x := ids{element: element(idx[17])}
	if !slices.Contains(megatronTypes, x.element) {
		return fail(17, "element type %d, want one of integers: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16", x.element)
	}
	s, d := binary.LittleEndian.Uint64(idx[18:]), binary.LittleEndian.Uint64(idx[26:])
	body := uint64(size - megatronHeader)
	if s > body/12 { // before any product, so that none can overflow
		return fail(18, "%d sequences do not fit into a file of %d bytes", s, size)
	}
	if d > (body-12*s)/8 {
		return fail(26, "%d document indices do not fit into a file of %d bytes", d, size)
	}
	if rest := body - 12*s - 8*d; rest != 0 && rest != s {
		return fail(size-int64(rest), "%d bytes follow %d sequences and %d document indices, want 0, or %d modes", rest, s, d, s)
	}
	used, err := megatronSequences(file, idx, int64(s), int64(x.width()), int64(len(bin)))
	if err == nil {
		err = megatronDocuments(file, idx, int64(s), int64(d))
	}
	if err != nil {
		return ids{}, 0, err
	}
	x.raw = bin[:used]
	return x, int64(d) - 1, nil
}

// megatronSequences checks that the sequences are contiguous in a PREFIX.bin of `bytes` bytes. It
// returns the number of bytes that the sequences take.
func megatronSequences(file string, idx []byte, s, width, bytes int64) (int64, error) {
	lengths, pointers := megatronHeader, megatronHeader+4*s
	used := int64(0)
	for i := range s {
		position := int64(lengths) + 4*i
		length := int64(int32(binary.LittleEndian.Uint32(idx[position:])))
		if length < 0 {
			return 0, broken(file, position, "sequence %d has %d tokens", i, length)
		}
		pointer := int64(binary.LittleEndian.Uint64(idx[pointers+8*i:]))
		if pointer != used {
			return 0, broken(file, pointers+8*i, "sequence %d begins at byte %d, want %d, where the one before it ends", i, pointer, used)
		}
		if length > (bytes-used)/width {
			return 0, broken(file, position, "sequence %d has %d tokens of %d bytes from byte %d on, beyond the %d bytes of the .bin file",
				i, length, width, used, bytes)
		}
		used += length * width
	}
	return used, nil
}

// megatronDocuments checks that the d document indices are ascending, from 0 to s.
func megatronDocuments(file string, idx []byte, s, d int64) error {
	if d < 1 {
		return broken(file, 26, "no document index, want at least one, the number of sequences")
	}
	position := megatronHeader + 12*s
	before := int64(0)
	for i := range d {
		first := int64(binary.LittleEndian.Uint64(idx[position+8*i:]))
		switch {
		case i == 0 && first != 0:
			return broken(file, position, "the first document begins at sequence %d, want 0", first)
		case first < before:
			return broken(file, position+8*i, "document index %d is %d, below %d before it", i, first, before)
		case i == d-1 && first != s:
			return broken(file, position+8*i, "the last document index is %d, want %d, the number of sequences", first, s)
		}
		before = first
	}
	return nil
}

// megatronIdx returns the index for documents of one sequence each. lengths are their numbers of
// tokens.
func megatronIdx(e element, lengths []int32) []byte {
	s := len(lengths)
	idx := make([]byte, 0, megatronHeader+20*s+8)
	idx = append(idx, megatronMagic...)
	idx = binary.LittleEndian.AppendUint64(idx, megatronVersion)
	idx = append(idx, byte(e))
	idx = binary.LittleEndian.AppendUint64(idx, uint64(s))
	idx = binary.LittleEndian.AppendUint64(idx, uint64(s)+1)
	for _, n := range lengths {
		idx = binary.LittleEndian.AppendUint32(idx, uint32(n))
	}
	pointer := uint64(0)
	for _, n := range lengths {
		idx = binary.LittleEndian.AppendUint64(idx, pointer)
		pointer += uint64(n) * uint64(e.width())
	}
	for document := range s + 1 {
		idx = binary.LittleEndian.AppendUint64(idx, uint64(document))
	}
	return idx
}
