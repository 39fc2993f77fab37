package cuda

import (
	"os"
	"path/filepath"
)

// libraryVariable names the environment variable that says where the library is.
const libraryVariable = "DYNMO_CUDA_LIBRARY"

// Library returns the file of the kernels: the one that DYNMO_CUDA_LIBRARY
// names; else libdynmo_cuda.so in ../lib of this binary, if it is there; else
// that name, which the loader looks for.
func Library() string {
	if path := os.Getenv(libraryVariable); path != "" {
		return path
	}
	binary, _ := os.Executable()
	return libraryOf(binary)
}

// libraryOf returns the file of the kernels of a binary.
func libraryOf(binary string) string {
	const name = "libdynmo_cuda.so"
	path := filepath.Join(filepath.Dir(binary), "..", "lib", name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	return name
}
