package weights

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/model"
)

// zeros is the shape of a model of a few values, whose weights are all zero.
func zeros() *Weights {
	c := model.Config{Blocks: 1, Hidden: 2, Heads: 1, Sequence: 2, Vocab: 3, Tied: true}
	return &Weights{Config: newConfig(c), rows: func(dst []byte, p model.Weight, lo, hi int64) ([]byte, error) {
		return append(dst, make([]byte, (hi-lo)*p.Row())...), nil
	}}
}

// The files of a tokenizer go with weights, byte for byte, whatever they hold.
func TestTokenizerGoesWithWeights(t *testing.T) {
	w, dir := zeros(), t.TempDir()
	w.Tokenizer = map[string][]byte{"tokenizer.json": []byte(`{"a": "é"}`), "tokenizer.model": {0, 0xff, 7}, "merges.txt": {}}
	hf, file := filepath.Join(dir, "hf"), filepath.Join(dir, "weights")
	expect.OK(t, w.WriteHuggingFace(hf, "", w.Tokenizer))
	foreign, err := OpenHuggingFace(hf)
	expect.OK(t, err)
	var text bytes.Buffer
	expect.OK(t, foreign.Write(&text))
	expect.OK(t, foreign.Close())
	expect.OK(t, os.WriteFile(file, text.Bytes(), 0o600))
	own, err := OpenWeights(file)
	expect.OK(t, err)
	defer own.Close()
	if !maps.EqualFunc(own.Tokenizer, w.Tokenizer, slices.Equal) {
		t.Errorf("%q, want %q", own.Tokenizer, w.Tokenizer)
	}
}

func TestTokenizerRefuses(t *testing.T) {
	for _, c := range []struct{ name, dtype, want string }{
		{"tokenizer/../x", "U8", `tensor "tokenizer/../x": U8 [4], want a file of a tokenizer as U8`},
		{"tokenizer/tokenizer.json", "F32", `tensor "tokenizer/tokenizer.json": F32 [4], want a file of a tokenizer as U8`},
	} {
		w := zeros()
		tensors := []Tensor{{Name: c.name, DType: DType(c.dtype), Shape: []int64{4}}}
		var text bytes.Buffer
		expect.OK(t, Write(&text, map[string]string{formatKey: ownFormat, configKey: string(w.Config.Text)}, tensors, func(out io.Writer, d Tensor) error {
			_, err := out.Write(make([]byte, 4*d.DType.bytes()))
			return err
		}))
		f, err := Parse("f", bytes.NewReader(text.Bytes()), int64(text.Len()))
		expect.OK(t, err)
		if _, err := f.Weights(); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}
