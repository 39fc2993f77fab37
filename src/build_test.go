package src_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"dynmo/src/expect"
)

// TestBuildSeesCSources edits csrc in every way Go's build cache would miss
// and asks build.sh for its settings: unless they change, an edit is missed.
func TestBuildSeesCSources(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		expect.OK(t, os.MkdirAll(filepath.Dir(name), 0o777))
		expect.OK(t, os.WriteFile(name, []byte(text), 0o666))
	}
	for _, name := range []string{"go.mod", "build.sh", "bench/machine.sh", "bench/cuda.sh"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		expect.OK(t, err)
		write(name, string(text))
	}
	settings := func() string {
		t.Helper()
		cmd := exec.Command(bash, filepath.Join(root, "build.sh"), "env")
		cmd.Env = append(os.Environ(), "TAGS=") // no need to look for MPI and BLAS
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		expect.OK(t, err)
		return string(text)
	}

	write("csrc/cpu/gemm.c", "int a;\n")
	before := settings()
	if again := settings(); again != before {
		t.Fatalf("nothing changed, but\n%s\nbecame\n%s", before, again)
	}
	for _, edit := range []struct{ name, file, text string }{
		{"one letter", "csrc/cpu/gemm.c", "int b;\n"},
		{"a new file", "csrc/cpu/add.c", "int a;\n"},
		{"a header", "csrc/include/cpu.h", ""},
	} {
		write(edit.file, edit.text)
		after := settings()
		if after == before {
			t.Errorf("%s: the settings are still\n%s", edit.name, after)
		}
		before = after
	}
}
