package data

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
)

// Files written by hand from the formats' layouts: llm.c's of the tokens 1 to
// 5, Megatron's of the documents [1 2 3] and [4 5].
const (
	goldenLLMC     = "88d834010100000005000000"
	goldenLLMCSum  = "cc0217dc2f5639c370783a90643ad5c9538a52addaccc9ded295611dc37fa36f"
	goldenIndex    = "4d4d4944494458000001000000000000000802000000000000000300000000000000030000000200000000000000000000000600000000000000000000000000000001000000000000000200000000000000"
	goldenIndexSum = "416ba3f8d9601192c5b0c9424ce7e61d6ac2d9d464dba8e5ee55deb8247de3aa"
	goldenIDs      = "01000200030004000500"
)

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// llmcOneToFive returns llm.c's file of the tokens 1 to 5.
func llmcOneToFive(t testing.TB) []byte {
	raw := make([]byte, llmcHeader)
	copy(raw, unhex(t, goldenLLMC))
	return append(raw, unhex(t, goldenIDs)...)
}

// put writes files into a new directory and returns the path of the first.
func put(t *testing.T, files map[string][]byte) string {
	t.Helper()
	text := map[string]string{}
	for name, raw := range files {
		text[name] = string(raw)
	}
	return filepath.Join(tree(t, text), "x.bin")
}

// write writes documents and returns the path of their file.
func write(t *testing.T, format Format, vocab int, documents ...[]int32) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.bin")
	w, err := Create(path, format, vocab)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range documents {
		if err := w.Append(d[:1], len(d) == 1); err != nil {
			t.Fatal(err)
		}
		if len(d) > 1 { // in two parts
			if err := w.Append(d[1:], true); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func contents(t testing.TB, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func all(t *testing.T, path string) (*Tokens, []int32) {
	t.Helper()
	f, err := OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	tokens := make([]int32, f.Len())
	f.ids.copyTo(tokens, 0)
	return f, tokens
}

func sum(raw []byte) string {
	s := sha256.Sum256(raw)
	return hex.EncodeToString(s[:])
}

func TestGoldenFiles(t *testing.T) {
	documents := [][]int32{{1, 2, 3}, {4, 5}}
	llmc := contents(t, write(t, LLMC, GPT2Vocab, documents...))
	if len(llmc) != 1034 || sum(llmc) != goldenLLMCSum || !bytes.Equal(llmc, llmcOneToFive(t)) {
		t.Errorf("llm.c: %d bytes, SHA-256 %s", len(llmc), sum(llmc))
	}
	path := write(t, Megatron, GPT2Vocab, documents...)
	if bin := contents(t, path); hex.EncodeToString(bin) != goldenIDs {
		t.Errorf("Megatron's .bin: %x", bin)
	}
	idx := contents(t, megatronIndex(path))
	if hex.EncodeToString(idx) != goldenIndex || sum(idx) != goldenIndexSum {
		t.Errorf("Megatron's .idx: %x", idx)
	}
}

func TestTokenFilesReadAsWritten(t *testing.T) {
	for _, c := range []struct {
		format    Format
		vocab     int
		element   string
		documents int64
		top       int32
	}{
		{LLMC, GPT2Vocab, "u16", Unrecorded, 50256},
		{LLMC, 1 << 16, "u16", Unrecorded, 65535},
		{LLMC, 128256, "u32", Unrecorded, 128255}, // LLaMA-3
		{Megatron, 65499, "u16", 3, 65498},
		{Megatron, 65500, "i32", 3, 65499},
	} {
		t.Run(fmt.Sprint(c.format, c.vocab), func(t *testing.T) {
			f, tokens := all(t, write(t, c.format, c.vocab, []int32{7, 3, c.top}, []int32{9}, []int32{3, 3}))
			if want := []int32{7, 3, c.top, 9, 3, 3}; !slices.Equal(tokens, want) {
				t.Errorf("tokens %v, want %v", tokens, want)
			}
			low, high := f.Span()
			if f.Format != c.format || f.Type() != c.element || f.Documents != c.documents || low != 3 || high != int64(c.top) {
				t.Errorf("%s %s, %d documents, ids %d to %d", f.Format, f.Type(), f.Documents, low, high)
			}
			if err := f.Check(int(c.top) + 1); err != nil {
				t.Error(err)
			}
			if f.Check(int(c.top)) == nil {
				t.Errorf("id %d passes for one below %d", c.top, c.top)
			}
		})
	}
}

func TestEmptyTokenFiles(t *testing.T) {
	for _, format := range []Format{LLMC, Megatron} {
		f, tokens := all(t, write(t, format, GPT2Vocab))
		low, high := f.Span()
		if len(tokens) != 0 || low != 0 || high != -1 || format == Megatron && f.Documents != 0 {
			t.Errorf("%s: %d tokens in %d documents, ids %d to %d", format, len(tokens), f.Documents, low, high)
		}
	}
}

// Every element type of Megatron's, with its smallest and largest id.
func TestMegatronElementTypes(t *testing.T) {
	for code, c := range map[element]struct {
		raw  string
		want [2]int64
	}{
		1: {"00ff", [2]int64{0, 255}},
		2: {"807f", [2]int64{-128, 127}},
		3: {"0080ff7f", [2]int64{math.MinInt16, math.MaxInt16}},
		4: {"00000080ffffff7f", [2]int64{math.MinInt32, math.MaxInt32}},
		5: {"0000000000000080ffffffffffffff7f", [2]int64{math.MinInt64, math.MaxInt64}},
		8: {"0000ffff", [2]int64{0, 65535}},
	} {
		idx := megatronIdx(code, []int32{2})
		x, documents, err := parseMegatron("x.idx", idx, unhex(t, c.raw))
		if err != nil || idx[17] != byte(code) || documents != 1 || x.count() != 2 {
			t.Fatalf("code %d: %d ids in %d documents, %v", code, x.count(), documents, err)
		}
		low, high := x.span()
		if x.at(0) != c.want[0] || x.at(1) != c.want[1] || low != c.want[0] || high != c.want[1] {
			t.Errorf("code %d: ids %d and %d, span %d to %d, want %v", code, x.at(0), x.at(1), low, high, c.want)
		}
		if want := map[bool]int{true: 0, false: 1}[c.want[0] < 0]; x.outside(200) != want {
			t.Errorf("code %d: outside of 200 at %d, want %d", code, x.outside(200), want)
		}
	}
}

// with returns a copy of raw with other bytes at some place.
func with(raw []byte, at int, other ...byte) []byte {
	raw = slices.Clone(raw)
	copy(raw[at:], other)
	return raw
}

func word64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func TestOpenTokensRefuses(t *testing.T) {
	llmc, idx, bin := llmcOneToFive(t), unhex(t, goldenIndex), unhex(t, goldenIDs)
	llmcFile := func(raw []byte) map[string][]byte { return map[string][]byte{"x.bin": raw} }
	megatron := func(idx []byte) map[string][]byte { return map[string][]byte{"x.bin": bin, "x.idx": idx} }
	for _, c := range []struct {
		name  string
		files map[string][]byte
		want  string // after the directory
	}{
		{"another magic", llmcFile(with(llmc, 0, 0x89)),
			"x.bin: byte 0: neither llm.c's magic number (20240520 or 20240801) nor, beside the file, an index of Megatron-LM (DIR/x.idx)"},
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
			_, err := OpenTokens(path)
			if err == nil {
				t.Fatal("opened")
			}
			if got := strings.ReplaceAll(err.Error(), filepath.Dir(path), "DIR"); got != "DIR/"+c.want {
				t.Errorf("got  %s\nwant DIR/%s", got, c.want)
			}
		})
	}
}

// Cut anywhere, a file is refused, and what is said is where it ends or which
// size lies.
func TestTokenFilesCutAnywhere(t *testing.T) {
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

func TestMegatronTakesModesAndMoreIDs(t *testing.T) {
	idx := append(unhex(t, goldenIndex), 0, 1) // a mode for each sequence
	f, tokens := all(t, put(t, map[string][]byte{"x.idx": idx, "x.bin": append(unhex(t, goldenIDs), 6, 0)}))
	if !slices.Equal(tokens, []int32{1, 2, 3, 4, 5}) || f.Documents != 2 {
		t.Errorf("tokens %v in %d documents", tokens, f.Documents)
	}
}

func TestCreateNeverOverwrites(t *testing.T) {
	for _, there := range []string{"x.bin", "x.idx"} {
		path := put(t, map[string][]byte{there: {1}})
		_, err := Create(path, LLMC, GPT2Vocab)
		if want := there + " is there already"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", there, err)
		}
		if raw := contents(t, filepath.Join(filepath.Dir(path), there)); len(raw) != 1 {
			t.Errorf("%s has %d bytes now", there, len(raw))
		}
	}
}

// A file whose writer did not reach its end is none.
func TestUnfinishedFilesAreRefused(t *testing.T) {
	for _, format := range []Format{LLMC, Megatron} {
		path := filepath.Join(t.TempDir(), "x.bin")
		w, err := Create(path, format, GPT2Vocab)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Append(make([]int32, 1<<20), true); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenTokens(path); err == nil {
			t.Errorf("%s: opened", format)
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: abort leaves the file", format)
		}
	}
}

func TestCorpusIsATokenFile(t *testing.T) {
	document := make([]int32, 100)
	for i := range document {
		document[i] = int32(50156 + i)
	}
	for _, format := range []Format{LLMC, Megatron} {
		path := write(t, format, GPT2Vocab, document)
		corpus, err := Open(config.Data{Path: path}, 50304, 8)
		if err != nil {
			t.Fatal(err)
		}
		tokens, targets := corpus.Batch(1, 2, 3, 5, 8)
		for i, id := range tokens {
			if id < 50156 || targets[i] != id+1 {
				t.Fatalf("%s: token %d, target %d", format, id, targets[i])
			}
		}
		raw := contents(t, path)
		if want := sum(raw[len(raw)-200:]); corpus.Hash() != want {
			t.Errorf("%s: hash %s, want that of the ids, %s", format, corpus.Hash(), want)
		}
		limited, err := Open(config.Data{Path: path, LimitBytes: 21}, 50166, 8) // 10 ids and a half
		if err != nil || limited.ids.count() != 10 {
			t.Errorf("%s: limited: %v", format, err)
		}
	}
}

func TestOpenRefusesTokenFiles(t *testing.T) {
	llmc := write(t, LLMC, GPT2Vocab, []int32{1, 2, 50256, 50255})
	megatron := write(t, Megatron, GPT2Vocab, []int32{1}, []int32{2, 50256})
	idx, bin := megatronIdx(i32, []int32{2}), unhex(t, "01000000ffffffff")
	negative := put(t, map[string][]byte{"x.bin": bin, "x.idx": idx})
	for _, c := range []struct {
		name     string
		cfg      config.Data
		sequence int
		want     string
	}{
		{"llm.c", config.Data{Path: llmc}, 1, "byte 1028: id 50256 of token 2, want 0 to 49999 (model.vocab = 50000)"},
		{"Megatron", config.Data{Path: megatron}, 1, "byte 4: id 50256 of token 2, want 0 to 49999 (model.vocab = 50000)"},
		{"below zero", config.Data{Path: negative}, 1, "byte 4: id -1 of token 1, want 0 to 49999 (model.vocab = 50000)"},
		{"short", config.Data{Path: llmc, LimitBytes: 4}, 2, "wanted at least 3 tokens, a sequence (model.sequence = 2) and the token after it; found 2 of 4 (data.limit_bytes = 4)"},
		{"shorter", config.Data{Path: write(t, LLMC, GPT2Vocab, []int32{1})}, 2, "wanted at least 3 tokens, a sequence (model.sequence = 2) and the token after it; found 1"},
	} {
		_, err := Open(c.cfg, 50000, c.sequence)
		want := "data: data.path: " + c.cfg.Path + ": " + c.want
		if err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, want)
		}
	}
	_, err := Open(config.Data{Path: "absent.bin"}, 256, 1)
	if want := `data: data.path = "absent.bin": no such file or directory`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What is read as a file of llm.c is written as it was.
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

// What is read as a Megatron data set has the sizes it says, and one document
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
