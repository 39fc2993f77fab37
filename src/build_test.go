package src_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/expect"
)

// put writes a file, and the folders it lies in.
func put(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	expect.OK(t, os.MkdirAll(filepath.Dir(name), 0o777))
	expect.OK(t, os.WriteFile(name, []byte(text), mode))
}

// scripts returns a folder with build.sh and its inputs.
func scripts(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"go.mod", "build.sh", "bench/machine.sh", "bench/mpi.sh", "bench/cuda.sh"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		expect.OK(t, err)
		put(t, filepath.Join(root, name), string(text), 0o666)
	}
	return root
}

// TestBuildSeesCSources edits csrc in every way Go's build cache would miss
// and asks build.sh for its settings: unless they change, an edit is missed.
func TestBuildSeesCSources(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	root := scripts(t)
	write := func(name, text string) { put(t, filepath.Join(root, name), text, 0o666) }
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

// TestToolkitHeaders: a toolkit's cuda.h comes before the system's. Its nvml.h comes after the one
// of the compiled module, since go-nvml's is newer.
func TestToolkitHeaders(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no cc")
	}
	root := scripts(t)
	write := func(name, text string) { put(t, filepath.Join(root, name), text, 0o777) }
	write("cuda/bin/nvcc", "")
	write("cuda/include/cuda.h", "CUDA of the toolkit\n")
	write("cuda/include/nvml.h", "NVML of the toolkit\n")
	write("cuda/include/alone.h", "what only the toolkit has\n")
	write("system/cuda.h", "CUDA of the system\n")
	write("module/nvml.h", "NVML of the module\n")
	// The go command compiles a package with its own flags and -I of its folder after
	// those of CGO_CFLAGS.
	cmd := exec.Command(bash, "-euo", "pipefail", "-c", `
		source bench/machine.sh
		source bench/cuda.sh
		find_nvcc && cuda_go
		printf '#include <cuda.h>\n#include "nvml.h"\n#include <alone.h>\n' | cc -E -P $CGO_CFLAGS -Imodule -isystem system -`)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CUDA_HOME="+filepath.Join(root, "cuda"), "NVCC="+filepath.Join(root, "cuda/bin/nvcc"), "CGO_CFLAGS=", "CGO_LDFLAGS=")
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	expect.OK(t, err)
	want := "CUDA of the toolkit\nNVML of the module\nwhat only the toolkit has\n"
	if string(text) != want {
		t.Errorf("includes\n%swant\n%s", text, want)
	}
}

// TestCUDAAsks: a toolkit of gigabytes is installed by those who agree to it, on a
// machine without one that apt could install it on.
func TestCUDAAsks(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	root := scripts(t)
	put(t, filepath.Join(root, "csrc/empty.c"), "", 0o666)
	tools := filepath.Join(root, "tools")
	put(t, filepath.Join(tools, "sudo"), "#!/bin/sh\n[ \"$2\" = true ] || touch installed\nexit 0\n", 0o777)
	put(t, filepath.Join(tools, "cc"), "#!/bin/sh\ncat >/dev/null\nln -sf /bin/false build/probe\n", 0o777) // no GPU
	for _, name := range []string{"apt-get", "apt-cache"} {
		put(t, filepath.Join(tools, name), "#!/bin/sh\ntouch installed\necho '  Candidate: 11.8'\nexit 1\n", 0o777)
	}
	for _, c := range []struct {
		name, args, want string
		status           int
		installs         bool
	}{
		{"no terminal", "", "./build.sh cuda would install Debian's CUDA toolkit, from non-free: about 1.6 GB to download, 5.3 GB on disk; there is no GPU here to use it: --yes agrees\n", 2, false},
		{"no such flag", "--y", "./build.sh cuda takes --yes, not: --y\n", 2, false},
		{"agreed", "--yes", "installing: nvidia-cuda-toolkit g++\n", 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(bash, append([]string{filepath.Join(root, "build.sh"), "cuda"}, strings.Fields(c.args)...)...)
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "TAGS=", "CC=cc", "NVCC=none", "CUDA_HOME=none", "PATH="+tools+":"+os.Getenv("PATH"))
			text, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != c.status {
				t.Errorf("status %d, want %d", got, c.status)
			}
			if c.status == 2 && string(text) != c.want || !strings.Contains(string(text), c.want) {
				t.Errorf("says\n%s\nwant\n%s", text, c.want)
			}
			if _, err := os.Stat(filepath.Join(root, "installed")); (err == nil) != c.installs {
				t.Errorf("installed: %v", err == nil)
			}
		})
	}
}
