package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"

	"dynmo/src/config"
	"dynmo/src/expect"
)

// texts of the tests: a document with an escape, an empty one, and one with a line feed.
var records = []string{"First document.", "", "Second \u00e9\nline"}

func gzipped(t *testing.T, text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, text)
	expect.OK(t, errors.Join(err, w.Close()))
	return b.String()
}

func zstandard(t *testing.T, text string) string {
	w, err := zstd.NewWriter(nil)
	expect.OK(t, err)
	return string(w.EncodeAll([]byte(text), nil))
}

// parquetFile returns a Parquet file with two row groups.
func parquetFile(t *testing.T, rows ...[2]string) string {
	type row struct {
		ID    int64   `parquet:"id"`
		Text  *string `parquet:"text,optional"`
		Title string  `parquet:"title,snappy"`
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b)
	for i, r := range rows {
		x := row{ID: int64(i), Text: &r[0], Title: r[1]}
		if r[0] == "null" {
			x.Text = nil
		}
		_, err := w.Write([]row{x})
		expect.OK(t, err)
		if i == len(rows)/2 {
			expect.OK(t, w.Flush())
		}
	}
	expect.OK(t, w.Close())
	return b.String()
}

// TestDocuments: every format has the same documents.
func TestDocuments(t *testing.T) {
	lines := "{\"id\": 1, \"text\": \"First document.\", \"title\": \"A\"}\n\n{\"text\": \"\", \"title\": \"\"}\n{\"title\": \"B\", \"text\": \"Second \\u00e9\\nline\"}"
	rows := parquetFile(t, [2]string{records[0], "A"}, [2]string{"null", ""}, [2]string{records[2], "B"})
	dir := expect.Tree(t, map[string]string{
		"a.jsonl": lines, "a.jsonl.gz": gzipped(t, lines), "lines": lines, "a.ndjson.zst": zstandard(t, lines), "odd.name": gzipped(t, lines), "a.parquet": rows,
		"plain.txt.gz": gzipped(t, records[0]), "plain.zst": zstandard(t, records[0]), "code.json": "{\n  \"text\": \"a\"\n}\n", "minified.json": "{\"name\": \"a\"}",
	})
	two := records[0] + "\x00" + records[2]
	joined := "A\n" + records[0] + "\x00\n\x00B\n" + records[2]
	for name, want := range map[string]string{
		"a.jsonl": two, "a.jsonl.gz": two, "lines": two, "a.ndjson.zst": two, "odd.name": two, "a.parquet": two,
		"plain.txt.gz": records[0], "plain.zst": records[0], "code.json": "{\n  \"text\": \"a\"\n}\n", "minified.json": "{\"name\": \"a\"}",
		"title,text of a.jsonl": joined, "title,text of a.parquet": strings.Replace(joined, "\x00\n\x00", "\x00", 1),
	} {
		keys := "text"
		if k, file, ok := strings.Cut(name, " of "); ok {
			keys, name = k, file
		}
		c, err := Open(config.Data{Path: filepath.Join(dir, name), JSONKey: keys}, 256, 1)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := string(c.content[0].raw); got != want && name != "a.parquet" || keys == "text" && got != want {
			t.Errorf("%s of %s: %q, want %q", keys, name, got, want)
		}
	}
}

// TestDocumentsRefuses: the error names file, record and the way out.
func TestDocumentsRefuses(t *testing.T) {
	rows := parquetFile(t, [2]string{"a", "A"}, [2]string{"b", "B"})
	torn := gzipped(t, strings.Repeat("many words ", 1000))
	dir := expect.Tree(t, map[string]string{
		"key.jsonl": "{\"txt\": \"a\", \"id\": 1}\n", "number.jsonl": "{\"text\": 5}\n", "torn.jsonl": "{\"text\": \"abc\"}\n{\"text\": \"a",
		"list.jsonl": "[1, 2]\n", "zero.jsonl": "{\"text\": \"ok\"}\n{\"text\": \"a\\u0000\"}\n", "latin.jsonl": "{\"text\": \"caf\xe9\"}\n",
		"a.parquet": rows, "cut.parquet": rows[:len(rows)-9], "torn.gz": torn[:len(torn)-12],
		"a.zip": "PK\x03\x04rest", "a.xz": "\xfd7zXZ\x00", "a.arrow": "ARROW1\x00\x00", "a.npy": "\x93NUMPY\x01",
	})
	for name, want := range map[string]string{
		"key.jsonl": `key.jsonl: line 1: no member "text": it has id, txt (json_key`, "number.jsonl": `line 1: member "text": `, "torn.jsonl": `line 2: member "text": invalid quoted string`,
		"list.jsonl": "line 1: no JSON object", "zero.jsonl": "zero.jsonl: record 2: byte 1 of its text: 0x00", "latin.jsonl": "line 1: byte 13: 0xe9: the text is not UTF-8",
		"txt of a.parquet": `no member "txt": it has id, text, title`, "id of a.parquet": `column "id" is INT`, "cut.parquet": "Parquet: ", "torn.gz": "gzip: the file is cut short",
		"a.zip": "a zip archive, want text, JSON lines or Parquet, plain or with gzip or zstd: unpack it", "a.xz": "xz", "a.arrow": "write it as Parquet", "a.npy": "a NumPy array",
	} {
		keys := "text"
		if k, file, ok := strings.Cut(name, " of "); ok {
			keys, name = k, file
		}
		_, err := Open(config.Data{Path: filepath.Join(dir, name), JSONKey: keys}, 256, 1)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// TestParquetInOrder: many row groups are read at a time, and their rows come in order.
func TestParquetInOrder(t *testing.T) {
	type row struct {
		Text string `parquet:"text"`
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b, parquet.MaxRowsPerRowGroup(700), parquet.PageBufferSize(4096))
	var want []string
	for i := range 20_000 {
		want = append(want, fmt.Sprintf("document %d %s", i, strings.Repeat("x", i%50)))
		_, err := w.Write([]row{{want[i]}})
		expect.OK(t, err)
	}
	expect.OK(t, w.Close())
	path := filepath.Join(t.TempDir(), "a.parquet")
	expect.OK(t, os.WriteFile(path, b.Bytes(), 0o666))
	for _, stop := range []int{len(want), 1500} { // the end, and in the middle
		d, err := File{Path: path}.Documents([]string{"text"})
		expect.OK(t, err)
		var got []string
		for range stop {
			doc, err := d.Next()
			expect.OK(t, err)
			text, err := io.ReadAll(doc.Text)
			expect.OK(t, err)
			got = append(got, string(text))
		}
		if !slices.Equal(got, want[:stop]) {
			t.Errorf("%d documents in another order", stop)
		}
		if stop == len(want) && d.At() != int64(b.Len()) {
			t.Errorf("%d of %d bytes read", d.At(), b.Len())
		}
		expect.OK(t, d.Close())
	}
}

// shard writes a token file of llm.c with n ids of one value.
func shard(t *testing.T, dir, name string, n int, id uint16) {
	t.Helper()
	raw := llmcHead(u16, int64(n))
	for range n {
		raw = binary.LittleEndian.AppendUint16(raw, id)
	}
	expect.OK(t, os.WriteFile(filepath.Join(dir, name), raw, 0o666))
}

// TestShards: token files of a directory or a pattern are one corpus, with weights or without.
func TestShards(t *testing.T) {
	dir := t.TempDir()
	shard(t, dir, "a_000.bin", 300, 1)
	shard(t, dir, "a_001.bin", 100, 2)
	shard(t, dir, "b_000.bin", 50, 3)
	expect.OK(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte("{}"), 0o666))
	for _, c := range []struct {
		cfg  config.Data
		want [4]float64 // share of sequences that begin with an id
	}{
		{config.Data{Path: dir}, [4]float64{0, 300. / 450, 100. / 450, 50. / 450}},
		{config.Data{Path: filepath.Join(dir, "a_*.bin")}, [4]float64{0, 0.75, 0.25, 0}},
		{config.Data{Path: dir, Weights: "1, 1,2"}, [4]float64{0, 0.25, 0.25, 0.5}},
		{config.Data{Path: dir, LimitBytes: 700}, [4]float64{0, 300. / 350, 50. / 350, 0}},
	} {
		corpus, err := Open(c.cfg, 1000, 4)
		if err != nil {
			t.Errorf("%+v: %v", c.cfg, err)
			continue
		}
		var count [4]float64
		b := corpus.Batches(1, 4)
		const draws = 4000
		for m := range draws {
			tokens, targets := b.Read(1, 0, m)
			count[tokens[0]] += 1. / draws
			if c.cfg.Weights != "" && targets[3] != tokens[0] {
				t.Fatalf("%+v: a sequence in two files: %v %v", c.cfg, tokens, targets)
			}
		}
		for id, want := range c.want {
			if math.Abs(count[id]-want) > 0.03 {
				t.Errorf("%+v: %.3f of the sequences begin in file %d, want %.3f", c.cfg, count[id], id, want)
			}
		}
		expect.OK(t, b.Err())
	}
	for want, cfg := range map[string]config.Data{
		"2 numbers, wanted 3":                    {Path: dir, Weights: "1,2"},
		`"-1", wanted numbers above 0`:           {Path: dir, Weights: "1,-1,1"},
		"no file has a name of this pattern":     {Path: filepath.Join(dir, "c*.bin")},
		"data.weights and data.dtype are for":    {Path: filepath.Join(dir, "tokenizer.json"), Weights: "1"},
		"b_000.bin has 50 tokens to train on":    {Path: dir, Weights: "1,1,1"},
		"a_001.bin: byte 1024: id 2 of token 0,": {Path: dir},
	} {
		vocab, sequence := 1000, 4
		if strings.Contains(want, "train on") {
			sequence = 60
		}
		if strings.Contains(want, "id 2") {
			shard(t, dir, "a_001.bin", 100, 2000)
		}
		if _, err := Open(cfg, vocab, sequence); err == nil || !strings.Contains(err.Error(), strings.Replace(want, "id 2 ", "id 2000 ", 1)) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
		shard(t, dir, "a_001.bin", 100, 2)
	}
}

// TestRawTokens: nanoGPT's files have ids alone.
func TestRawTokens(t *testing.T) {
	dir := expect.Tree(t, map[string]string{"train.bin": "\x01\x00\x02\x00\x00\x01", "odd.bin": "\xff\x00\x02"})
	c, err := Open(config.Data{Path: filepath.Join(dir, "train.bin"), DType: "u16"}, 1000, 2)
	expect.OK(t, err)
	if got := tokensOf(c); !slices.Equal(got, []int32{1, 2, 256}) {
		t.Errorf("ids %v", got)
	}
	if _, err := Open(config.Data{Path: filepath.Join(dir, "odd.bin"), DType: "u16"}, 1000, 2); err == nil || !strings.Contains(err.Error(), "odd.bin: byte 2: 1 bytes behind the last whole id") {
		t.Errorf("%v", err)
	}
}

// TestLinks: links are followed; a link to nothing, and a circle, are named.
func TestLinks(t *testing.T) {
	dir := expect.Tree(t, map[string]string{"d/a.txt": "a", "elsewhere/b.txt": "b", "circle/c.txt": "c", "lost/a.txt": "a"})
	link := func(to, from string) { expect.OK(t, os.Symlink(to, filepath.Join(dir, from))) }
	link("../elsewhere", "d/more")
	link("..", "circle/up")
	link("nowhere", "lost/gone.txt")
	list, err := List(filepath.Join(dir, "d"), nil, 0)
	if err != nil || len(list) != 2 {
		t.Errorf("%v, %v", list, err)
	}
	for name, want := range map[string]string{"circle": "circle/up/circle: a link to a directory that it is in", "lost": "lost/gone.txt: no such file"} {
		if _, err := List(filepath.Join(dir, name), nil, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
