package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/replace"
)

// llmc returns the model as llm.c's train_gpt2.py writes it: matrices
// transposed to (out, in), the vocabulary padded with zeros to 128 rows.
func (g *gpt2) llmc() []byte {
	header := make([]int32, 256)
	copy(header, []int32{20240326, 3, int32(g.sequence), int32(g.vocab), int32(g.blocks), int32(g.heads), int32(g.hidden), 128})
	var out bytes.Buffer
	put := func(values any) { binary.Write(&out, binary.LittleEndian, values) }
	put(header)
	put(g.values["wte.weight"])
	put(make([]float32, (128-g.vocab)*g.hidden))
	put(g.values["wpe.weight"])
	for _, name := range []string{"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"} {
		for _, kind := range []string{".weight", ".bias"} {
			for b := range g.blocks {
				full := fmt.Sprintf("h.%d.%s%s", b, name, kind)
				shape, values := g.shape[full], g.values[full]
				if len(shape) == 1 {
					put(values)
					continue
				}
				for o := range shape[1] {
					for i := range shape[0] {
						put(values[i*shape[1]+o])
					}
				}
			}
		}
	}
	put(g.values["ln_f.weight"])
	put(g.values["ln_f.bias"])
	return out.Bytes()
}

// llm.c's file and Hugging Face's directory have the same content. Each can be made from the other
// and back, byte for byte.
func TestLLMC(t *testing.T) {
	g := newGPT2(true, "")
	dir := t.TempDir()
	path := filepath.Join(dir, "gpt2.bin")
	save(t, path, g.llmc())
	w, err := OpenLLMC(path)
	expect.OK(t, err)
	w = written(t, w)
	expect.OK(t, w.WriteHuggingFace(filepath.Join(dir, "hf"), F32, nil))
	if !bytes.Equal(read(t, filepath.Join(dir, "hf", "model.safetensors")), g.file(g.names())) {
		t.Error("Hugging Face's file is another")
	}
	if _, err := OpenHuggingFace(filepath.Join(dir, "hf")); err != nil { // with the config.json made here
		t.Error(err)
	}
	for name, from := range map[string]*Weights{"llm.c": w, "Hugging Face": imported(t, g.directory(t))} {
		expect.OK(t, replace.Write(path, from.WriteLLMC))
		if !bytes.Equal(read(t, path), g.llmc()) {
			t.Errorf("from %s: llm.c's file has changed", name)
		}
	}
	if err := imported(t, newGPT2(false, "").directory(t)).WriteLLMC(io.Discard); err == nil || !strings.Contains(err.Error(), "not tied") {
		t.Errorf("a head of its own: error %v", err)
	}
}

func TestLLMCRefuses(t *testing.T) {
	good := newGPT2(true, "").llmc()
	for _, c := range []struct {
		name  string
		field int
		value int32
		want  string
	}{
		{"tokens, not a model", 0, 20240520, "byte 0: magic 20240520, want 20240326"},
		{"bfloat16", 1, 5, "byte 4: version 5, want 3"},
		{"no tokens", 2, 0, "byte 8: 0: want 1 to"},
		{"negative vocabulary", 3, -1, "byte 12: -1: want 1 to"},
		{"blocks", 4, 1 << 30, "byte 16: 1073741824: want 1 to 4096"},
		{"heads", 5, 3, "byte 20: 3 heads do not divide 8 channels"},
		{"channels", 6, -1 << 31, "byte 24: -2147483648: want 1 to"},
		{"padding", 7, 13, "byte 28: padded vocabulary 13, want 128"},
		{"one block less", 4, 1, "bytes, want"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := bytes.Clone(good)
			binary.LittleEndian.PutUint32(file[4*c.field:], uint32(c.value))
			if _, err := parseLLMC("m.bin", bytes.NewReader(file), int64(len(file))); err == nil || !strings.HasPrefix(err.Error(), "m.bin: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	for n := range good {
		if _, err := parseLLMC("m.bin", bytes.NewReader(good[:n]), int64(n)); err == nil {
			t.Fatalf("%d of %d bytes are taken for a model", n, len(good))
		}
	}
}

// FuzzLLMC: a file is refused, or all its parameters can be read.
func FuzzLLMC(f *testing.F) {
	f.Add(newGPT2(true, "").llmc())
	f.Add(make([]byte, 1024))
	f.Fuzz(func(t *testing.T, file []byte) {
		w, err := parseLLMC("fuzz.bin", bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		readAll(t, w)
	})
}
