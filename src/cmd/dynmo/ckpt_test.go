package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"

	"github.com/spf13/cobra"
)

// ckpt runs the command and returns what it says and its exit status.
func ckpt(args ...string) (stdout, stderr string, status int) {
	root := &cobra.Command{Use: "dynmo", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(ckptCommand())
	var out, errs bytes.Buffer
	status = execute(root, append([]string{"ckpt"}, args...), &out, &errs)
	return out.String(), errs.String(), status
}

// llmcFile writes llm.c's model file of one block with 4 channels.
func llmcFile(t *testing.T) string {
	t.Helper()
	header := make([]int32, 256)
	copy(header, []int32{20240326, 3, 3, 5, 1, 2, 4, 128})
	values := make([]float32, 128*4+3*4+2*4+12*4+12+4*4+4+2*4+16*4+16+16*4+4+2*4)
	for i := range values {
		if row := i / 4; row < 5 || row >= 128 { // not the padding of the vocabulary
			values[i] = float32(i)
		}
	}
	var b bytes.Buffer
	for _, part := range []any{header, values} {
		expect.OK(t, binary.Write(&b, binary.LittleEndian, part))
	}
	path := filepath.Join(t.TempDir(), "gpt2.bin")
	expect.OK(t, os.WriteFile(path, b.Bytes(), 0o600))
	return path
}

// From llm.c's file to a weights file, to Hugging Face's directory, back, and
// to llm.c's file again: the first and the last are equal.
func TestCkptImportExport(t *testing.T) {
	source, dir := llmcFile(t), t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, args := range [][]string{
		{"import", source, "-o", at("a.safetensors")},
		{"export", at("a.safetensors"), "-o", at("hf")},
		{"import", at("hf"), "--output", at("b.safetensors")},
		{"export", at("b.safetensors"), "--format", "llmc", "-o", at("again.bin")},
	} {
		if out, errs, status := ckpt(args...); status != exitDone || out+errs != "" {
			t.Fatalf("%q: status %d, %s%s", args, status, out, errs)
		}
	}
	want, err := os.ReadFile(source)
	expect.OK(t, err)
	if got, err := os.ReadFile(at("again.bin")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the model has changed: %v", err)
	}
	out, errs, status := ckpt("verify", at("a.safetensors"))
	if status != exitDone || !strings.Contains(out, "a.safetensors: dynmo weights, 16 tensors, ") {
		t.Errorf("status %d, %s%s", status, out, errs)
	}
	if out, _, status = ckpt("verify", at("hf/model.safetensors")); status != exitDone || !strings.Contains(out, ": safetensors, 16 tensors, ") {
		t.Errorf("status %d, %s", status, out)
	}
	out, _, status = ckpt("inspect", at("a.safetensors"), "--json")
	var c contents
	if err := json.Unmarshal([]byte(out), &c); err != nil || status != exitDone {
		t.Fatalf("status %d, %s, %v", status, out, err)
	}
	if x := c.Tensors[0]; len(c.Tensors) != 16 || x.Name != "block.0/down.bias" || x.DType != "F32" || fmt.Sprint(x.Shape) != "[4]" || x.Bytes != 16 {
		t.Errorf("inspect: %s", out)
	}
	out, _, status = ckpt("inspect", at("a.safetensors"))
	if want := "F32                 192 [12 4]           block.0/qkv.weight\n"; status != exitDone || !strings.Contains(out, want) || !strings.Contains(out, "16 tensors, 1136 bytes\n") {
		t.Errorf("status %d, want %q:\n%s", status, want, out)
	}
}

func TestCkptRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"text":              "no weights at all",
		"llama/config":      "",
		"llama/config.json": `{"model_type":"llama"}`,
		"foreign":           "\x02\x00\x00\x00\x00\x00\x00\x00{}",
	} {
		expect.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		expect.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir)
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"", exitUsage, "ckpt: what? see dynmo ckpt --help"},
		{"inspect", exitUsage, "accepts 1 arg"},
		{"inspect nothing", exitUsage, "nothing: no such file"},
		{"inspect .", exitUsage, ".: want a regular file"},
		{"inspect text", exitUsage, "text: byte 0: header of"},
		{"verify text", exitUsage, "text: byte 0: header of"},
		{"import text", exitUsage, `"output" not set`},
		{"import text -o out", exitUsage, "text: byte 17: the file ends within the header"},
		{"import llama -o out", exitUsage, `llama/config.json: model_type: byte 14: "llama" is not supported, want one of gpt2`},
		{"import nothing -o out", exitUsage, "nothing: no such file"},
		{"export foreign -o out", exitUsage, "foreign: metadata: format"},
		{"export foreign -o out --format onnx", exitUsage, `--format "onnx", want huggingface or llmc`},
	} {
		out, errs, status := ckpt(strings.Fields(c.args)...)
		if status != c.status || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: status %d, stdout %q, stderr %q; want status %d and %q", c.args, status, out, errs, c.status, c.want)
		}
	}
	if _, err := os.Stat("out"); err == nil {
		t.Error("a refused import has written its file")
	}
	source := llmcFile(t)
	if _, errs, status := ckpt("import", source, "-o", "no/such/dir"); status != exitFailure || !strings.Contains(errs, "no/such") {
		t.Errorf("status %d, %s", status, errs)
	}
}
