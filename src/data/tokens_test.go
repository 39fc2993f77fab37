package data

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dynmo/src/config"
	"dynmo/src/expect"
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
	expect.OK(t, err)
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
	return filepath.Join(expect.Tree(t, text), "x.bin")
}

// write writes documents and returns the path of their file.
func write(t *testing.T, format Format, vocab int, documents ...[]int32) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.bin")
	w, err := Create(path, format, vocab)
	expect.OK(t, err)
	for _, d := range documents {
		expect.OK(t, w.Append(d[:1], len(d) == 1))
		if len(d) > 1 { // in two parts
			expect.OK(t, w.Append(d[1:], true))
		}
	}
	expect.OK(t, w.Close())
	return path
}

func all(t *testing.T, path string) (*Tokens, []int32) {
	t.Helper()
	f, err := OpenTokens(path, "")
	expect.OK(t, err)
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
	llmc := expect.Read(t, write(t, LLMC, GPT2Tokens, documents...))
	if len(llmc) != 1034 || sum(llmc) != goldenLLMCSum || !bytes.Equal(llmc, llmcOneToFive(t)) {
		t.Errorf("llm.c: %d bytes, SHA-256 %s", len(llmc), sum(llmc))
	}
	path := write(t, Megatron, GPT2Tokens, documents...)
	if bin := expect.Read(t, path); hex.EncodeToString(bin) != goldenIDs {
		t.Errorf("Megatron's .bin: %x", bin)
	}
	idx := expect.Read(t, megatronIndex(path))
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
		{LLMC, GPT2Tokens, "u16", Unrecorded, 50256},
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
		f, tokens := all(t, write(t, format, GPT2Tokens))
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
		if x.id(0) != c.want[0] || x.id(1) != c.want[1] || low != c.want[0] || high != c.want[1] {
			t.Errorf("code %d: ids %d and %d, span %d to %d, want %v", code, x.id(0), x.id(1), low, high, c.want)
		}
		if want := map[bool]int{true: 0, false: 1}[c.want[0] < 0]; x.outside(200) != want {
			t.Errorf("code %d: outside of 200 at %d, want %d", code, x.outside(200), want)
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

// A file takes the place of one of either format, index and all, and one that is given
// up leaves that as it was.
func TestWriterReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.bin")
	for _, format := range []Format{Megatron, LLMC, Megatron, Megatron} {
		w, err := Create(path, format, GPT2Tokens)
		expect.OK(t, err)
		expect.OK(t, w.Append([]int32{1, 2, 3}, true))
		expect.OK(t, w.Close())
		given, err := Create(path, format, GPT2Tokens)
		expect.OK(t, err)
		expect.OK(t, given.Append([]int32{4}, true))
		given.Abort()
		if f, tokens := all(t, path); f.Format != format || !slices.Equal(tokens, []int32{1, 2, 3}) {
			t.Errorf("%s: tokens %v of %s", format, tokens, f.Format)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 2 {
		t.Errorf("files %v, %v", left, err)
	}
}

func TestCorpusIsATokenFile(t *testing.T) {
	document := make([]int32, 100)
	for i := range document {
		document[i] = int32(50156 + i)
	}
	for _, format := range []Format{LLMC, Megatron} {
		path := write(t, format, GPT2Tokens, document)
		corpus, err := Open(config.Data{Path: path}, 50304, 8)
		expect.OK(t, err)
		tokens, targets := corpus.Batches(5, 8).Read(1, 2, 3)
		for i, id := range tokens {
			if id < 50156 || targets[i] != id+1 {
				t.Fatalf("%s: token %d, target %d", format, id, targets[i])
			}
		}
		raw := expect.Read(t, path)
		if want := sum(raw[len(raw)-200:]); corpus.Hash() != want {
			t.Errorf("%s: hash %s, want that of the ids, %s", format, corpus.Hash(), want)
		}
		limited, err := Open(config.Data{Path: path, LimitBytes: 21}, 50166, 8) // 10 ids and a half
		if err != nil || limited.content.count() != 10 {
			t.Errorf("%s: limited: %v", format, err)
		}
	}
}

func TestOpenRefusesTokenFiles(t *testing.T) {
	llmc := write(t, LLMC, GPT2Tokens, []int32{1, 2, 50256, 50255})
	megatron := write(t, Megatron, GPT2Tokens, []int32{1}, []int32{2, 50256})
	idx, bin := megatronIdx(i32, []int32{2}), unhex(t, "01000000ffffffff")
	negative := put(t, map[string][]byte{"x.bin": bin, "x.idx": idx})
	for _, c := range []struct {
		name     string
		cfg      config.Data
		sequence int
		want     string
	}{
		{"llm.c", config.Data{Path: llmc}, 1, "byte 1028: id 50256 of token 2, want 0 to 49999 (model.vocab = 50000): the largest id here is 50256, so set model.vocab to the vocabulary of the tokens' tokenizer, at least 50257"},
		{"Megatron", config.Data{Path: megatron}, 1, "byte 4: id 50256 of token 2, want 0 to 49999 (model.vocab = 50000): the largest id here is 50256, so set model.vocab to the vocabulary of the tokens' tokenizer, at least 50257"},
		{"below zero", config.Data{Path: negative}, 1, "byte 4: id -1 of token 1, want 0 to 49999 (model.vocab = 50000)"},
		{"short", config.Data{Path: llmc, LimitBytes: 4}, 2, "wanted at least 3 tokens, a sequence (model.sequence = 2) and the token after it; found 2 of 4 (data.limit_bytes = 4)"},
		{"shorter", config.Data{Path: write(t, LLMC, GPT2Tokens, []int32{1})}, 2, "wanted at least 3 tokens, a sequence (model.sequence = 2) and the token after it; found 1"},
	} {
		_, err := Open(c.cfg, 50000, c.sequence)
		want := "data: data.path: " + c.cfg.Path + ": " + c.want
		if err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", c.name, err, want)
		}
	}
	dir := t.TempDir()
	t.Chdir(dir)
	for path, found := range map[string]string{"absent.bin": "no such file or directory", "a*.bin": "no file has a name of this pattern"} {
		_, err := Open(config.Data{Path: path}, 256, 1)
		if want := fmt.Sprintf("data: data.path = %q: %s (looked for %s)", path, found, filepath.Join(dir, path)); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestChangedWhileRead: a token file that another program shortens or writes to is an error that names
// the file, not a crash or other data.
func TestChangedWhileRead(t *testing.T) {
	document := make([]int32, 1<<16) // many pages
	for name, change := range map[string]func(path string) error{
		"shortened": func(path string) error { return os.Truncate(path, 4096) },
		"written to": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte{0xff, 0xff}, 1<<16)
			return errors.Join(err, f.Close(), os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)))
		},
	} {
		path := write(t, LLMC, GPT2Tokens, document)
		corpus, err := Open(config.Data{Path: path}, 50304, 8)
		expect.OK(t, err)
		before := corpus.Batches(100, 8)
		before.Read(1, 2, 3)
		expect.OK(t, before.Err())
		expect.OK(t, os.Chtimes(path, time.Time{}, time.Now().Add(time.Minute)))
		before.Read(1, 2, 3)
		expect.OK(t, before.Err()) // it was only touched
		expect.OK(t, change(path))
		for _, even := range []bool{false, true} {
			b := corpus.Batches(100, 8)
			var tokens, targets []int32
			if even {
				tokens, targets = b.Even(0, 1)
			} else {
				tokens, targets = b.Read(1, 2, 3)
			}
			if err := b.Err(); err == nil || !strings.HasPrefix(err.Error(), "data: data.path: "+path+": ") || len(tokens) != 800 || len(targets) != 800 {
				t.Errorf("%s, Even %v: %v", name, even, err)
			}
		}
	}
}
