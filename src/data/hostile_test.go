package data

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// with returns a copy of raw with other bytes at some place.
func with(raw []byte, position int, other ...byte) []byte {
	raw = slices.Clone(raw)
	copy(raw[position:], other)
	return raw
}

func word64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func TestOpenTokensRefuses(t *testing.T) {
	expect.NewFault(t, "F28", "")
	llmc, idx, bin := llmcOneToFive(t), unhex(t, goldenIndex), unhex(t, goldenIDs)
	llmcFile := func(raw []byte) map[string][]byte { return map[string][]byte{"x.bin": raw} }
	megatron := func(idx []byte) map[string][]byte { return map[string][]byte{"x.bin": bin, "x.idx": idx} }
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  string // after the directory
	}{
		{"another magic", llmcFile(with(llmc, 0, 0x89)),
			"x.bin: byte 0: neither llm.c's magic number (20240520 or 20240801) nor, beside the file, an index of Megatron-LM (DIR/x.idx); data.dtype names the type of ids without a header, as nanoGPT's"},
		{"another version", llmcFile(with(llmc, 4, 2)), "x.bin: byte 4: version 2, want 1"},
		{"LLaMA-3 of GPT-2's version", llmcFile(with(llmc, 0, binary.LittleEndian.AppendUint32(nil, llmcLlama3Magic)...)),
			"x.bin: byte 4: version 1, want 7"},
		{"too many tokens", llmcFile(with(llmc, 8, 6)), "x.bin: byte 8: 6 tokens of 2 bytes make a file of 1036 bytes, it has 1034"},
		{"too few tokens", llmcFile(with(llmc, 8, 4)), "x.bin: byte 8: 4 tokens of 2 bytes make a file of 1032 bytes, it has 1034"},
		{"2^31 tokens", llmcFile(with(llmc, 8, 0, 0, 0, 0x80)), "x.bin: byte 8: 2147483648 tokens, want fewer than 2^31"},
		{"more in the header", llmcFile(with(llmc, 1020, 1)), "x.bin: byte 1020: header word 255 is 1, want 0"},
		{"half a token", llmcFile(llmc[:1033]), "x.bin: byte 8: 5 tokens of 2 bytes make a file of 1034 bytes, it has 1033"},
		{"two formats", map[string][]byte{"x.bin": llmc, "x.idx": idx},
			"x.bin: byte 0: llm.c's magic number, yet an index of Megatron-LM lies beside the file (DIR/x.idx): remove one of the two"},

		{"TNTIDX", megatron([]byte("TNTIDX\x00\x00\x01\x00")),
			"x.idx: byte 0: an index of the old format TNTIDX, which is not read: write the data set anew with Megatron's preprocess_data.py"},
		{"another index magic", megatron(with(idx, 8, 1)), `x.idx: byte 0: magic "MMIDIDX\x00\x01", want "MMIDIDX\x00\x00"`},
		{"another index version", megatron(with(idx, 9, 2)), "x.idx: byte 9: version 2, want 1"},
		{"floats", megatron(with(idx, 17, 7)), "x.idx: byte 17: element type 7, want one of integers: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16"},
		{"no element type", megatron(with(idx, 17, 0)), "x.idx: byte 17: element type 0, want one of integers: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16"},
		{"unknown element type", megatron(with(idx, 17, 255)), "x.idx: byte 17: element type 255, want one of integers: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16"},
		{"too many sequences", megatron(with(idx, 18, 5)), "x.idx: byte 18: 5 sequences do not fit into a file of 82 bytes"},
		{"sequences that overflow", megatron(with(idx, 18, word64(math.MaxUint64/12+1)...)), "x.idx: byte 18: 1537228672809129302 sequences do not fit into a file of 82 bytes"},
		{"too many documents", megatron(with(idx, 26, 4)), "x.idx: byte 26: 4 document indices do not fit into a file of 82 bytes"},
		{"documents that overflow", megatron(with(idx, 26, word64(math.MaxUint64/8+4)...)), "x.idx: byte 26: 2305843009213693955 document indices do not fit into a file of 82 bytes"},
		{"too few documents", megatron(with(idx, 26, 2)), "x.idx: byte 74: 8 bytes follow 2 sequences and 2 document indices, want 0, or 2 modes"},
		{"a byte more", megatron(append(slices.Clone(idx), 0)), "x.idx: byte 82: 1 bytes follow 2 sequences and 3 document indices, want 0, or 2 modes"},
		{"a sequence of less than nothing", megatron(with(idx, 34, 0xff, 0xff, 0xff, 0xff)), "x.idx: byte 34: sequence 0 has -1 tokens"},
		{"a sequence beyond the end", megatron(with(idx, 38, 3)), "x.idx: byte 38: sequence 1 has 3 tokens of 2 bytes from byte 6 on, beyond the 10 bytes of the .bin file"},
		{"a gap", megatron(with(idx, 50, 8)), "x.idx: byte 50: sequence 1 begins at byte 8, want 6, where the one before it ends"},
		{"a pointer below zero", megatron(with(idx, 42, word64(math.MaxUint64)...)), "x.idx: byte 42: sequence 0 begins at byte -1, want 0, where the one before it ends"},
		{"a first document that is not", megatron(with(idx, 58, 1)), "x.idx: byte 58: the first document begins at sequence 1, want 0"},
		{"documents that fall", megatron(with(idx, 66, word64(math.MaxUint64)...)), "x.idx: byte 66: document index 1 is -1, below 0 before it"},
		{"a last document that is not", megatron(with(idx, 74, 1)), "x.idx: byte 74: the last document index is 1, want 2, the number of sequences"},
		{"no documents", megatron(with(idx[:58], 26, 0)), "x.idx: byte 26: no document index, want at least one, the number of sequences"},
		{"an empty index", megatron(nil), "x.idx: byte 0: the file ends inside the header of 34 bytes"},
		{"a .bin too short", map[string][]byte{"x.bin": bin[:9], "x.idx": idx}, "x.idx: byte 38: sequence 1 has 2 tokens of 2 bytes from byte 6 on, beyond the 9 bytes of the .bin file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := put(t, c.files)
			_, err := OpenTokens(path, "")
			if err == nil {
				t.Fatal("opened")
			}
			if got := strings.ReplaceAll(err.Error(), filepath.Dir(path), "DIR"); got != "DIR/"+c.want {
				t.Errorf("got  %s\nwant DIR/%s", got, c.want)
			}
		})
	}
}

// A file that is cut off at any byte is refused. The error names the end of the file or the wrong
// size.
func TestTokenFilesCutAnywhere(t *testing.T) {
	expect.NewFault(t, "F28", "")
	llmc, idx, bin := llmcOneToFive(t), unhex(t, goldenIndex), unhex(t, goldenIDs)
	for n := range llmc {
		if _, err := parseLLMC("x.bin", llmc[:n]); err == nil || n < llmcHeader && !strings.Contains(err.Error(), fmt.Sprintf("byte %d: the file ends", n)) {
			t.Errorf("llm.c's file cut to %d bytes: %v", n, err)
		}
	}
	for n := range idx {
		if _, _, err := parseMegatron("x.idx", idx[:n], bin); err == nil || n < megatronHeader && !strings.Contains(err.Error(), fmt.Sprintf("byte %d: the file ends", n)) {
			t.Errorf("index cut to %d bytes: %v", n, err)
		}
	}
	for n := range bin {
		if _, _, err := parseMegatron("x.idx", idx, bin[:n]); err == nil {
			t.Errorf("ids cut to %d bytes: read", n)
		}
	}
}

// Files that lie about their sizes are refused before these are allocated.
func TestTokenFilesRefusedBeforeAllocation(t *testing.T) {
	expect.NewFault(t, "F29", "")
	llmc, idx, bin := llmcOneToFive(t), unhex(t, goldenIndex), unhex(t, goldenIDs)
	allocated := func(parse func() error) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if parse() == nil {
			t.Error("a file that lies is read")
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	for _, lie := range []uint64{1 << 30, math.MaxInt32, 1 << 40, math.MaxUint64} {
		n := allocated(func() error {
			_, err := parseLLMC("x.bin", with(llmc, 8, word64(lie)[:4]...))
			return err
		})
		for _, position := range []int{18, 26} {
			n += allocated(func() error {
				_, _, err := parseMegatron("x.idx", with(idx, position, word64(lie)...), bin)
				return err
			})
		}
		if n > 1<<20 {
			t.Errorf("%d: %d bytes allocated", lie, n)
		}
	}
}

// A file whose writer did not reach its end is none.
func TestUnfinishedFilesAreRefused(t *testing.T) {
	for _, format := range []Format{LLMC, Megatron} {
		path := filepath.Join(t.TempDir(), "x.bin")
		w, err := Create(path, format, GPT2Tokens)
		expect.OK(t, err)
		expect.OK(t, w.Append(make([]int32, 1<<20), true))
		if _, err := OpenTokens(path, ""); err == nil {
			t.Errorf("%s: opened", format)
		}
		w.Abort()
		if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) > 0 {
			t.Errorf("%s: abort leaves %v, %v", format, left, err)
		}
	}
}

// A file that is read as one of llm.c is written as it was.
func FuzzLLMC(f *testing.F) {
	golden := llmcOneToFive(f)
	f.Add(golden)
	f.Add(append(llmcHead(u32, 2), 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff))
	f.Add(with(golden, 8, 0xff, 0xff, 0xff, 0xff))
	f.Add(golden[:llmcHeader-1])
	f.Fuzz(func(t *testing.T, raw []byte) {
		x, err := parseLLMC("x.bin", raw)
		if err != nil {
			return
		}
		x.span()
		if again := append(llmcHead(x.element, int64(x.count())), x.raw...); !bytes.Equal(again, raw) {
			t.Errorf("read % x, written % x", raw, again)
		}
	})
}

// A data set that is read as one of Megatron has the sizes it says, and one document
// per sequence is written as it was.
func FuzzMegatron(f *testing.F) {
	idx, bin := unhex(f, goldenIndex), unhex(f, goldenIDs)
	f.Add(idx, bin)
	f.Add(append(slices.Clone(idx), 0, 0), bin)
	f.Add(with(idx, 17, 4), bin)
	f.Add(with(idx, 18, word64(math.MaxUint64/12)...), bin)
	f.Add([]byte("TNTIDX\x00\x00"), bin)
	f.Add(megatronIdx(u16, nil), []byte{})
	f.Fuzz(func(t *testing.T, idx, bin []byte) {
		x, documents, err := parseMegatron("x.idx", idx, bin)
		if err != nil {
			return
		}
		x.span()
		s := int(binary.LittleEndian.Uint64(idx[18:]))
		lengths := make([]int32, s)
		total := 0
		for i := range lengths {
			lengths[i] = int32(binary.LittleEndian.Uint32(idx[34+4*i:]))
			total += int(lengths[i])
		}
		if x.count() != total || len(x.raw) > len(bin) || documents < 0 {
			t.Fatalf("%d ids in %d bytes of %d, %d documents, sequences of %v", x.count(), len(x.raw), len(bin), documents, lengths)
		}
		again := megatronIdx(x.element, lengths)
		if n := megatronHeader + 12*s; !bytes.Equal(again[:26], idx[:26]) || !bytes.Equal(again[34:n], idx[34:n]) {
			t.Errorf("read % x, written % x", idx, again)
		}
	})
}
