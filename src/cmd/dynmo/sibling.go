package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"dynmo/src/device/cuda"
)

// siblingName is the file beside this binary that is built from the same source
// with the tag cuda. It cannot even start without a GPU, so it is not this one.
const siblingName = "dynmo-cuda"

// useGPU makes sure that this process can have the kind of device that the
// settings want. For "cuda" it becomes, where it is not, the sibling, with the
// same arguments: it must be called before MPI starts. The error says what is
// missing: a driver, a GPU, or the sibling.
func useGPU(kind string) error {
	if kind != "cuda" || cuda.Built {
		return nil
	}
	if _, err := cuda.Probe(); err != nil {
		return usageError{fmt.Errorf("device.kind = \"cuda\": %w", err)}
	}
	path, err := sibling()
	if err != nil {
		return usageError{fmt.Errorf("device.kind = \"cuda\": %w", err)}
	}
	err = syscall.Exec(path, append([]string{path}, os.Args[1:]...), withLoading(os.Environ()))
	return fmt.Errorf("%s: %w", path, err)
}

// loading is how the driver brings kernels to a GPU. Lazily, at their first launch,
// it may wait for all work of the GPU, and with it for a message whose other half
// another rank has yet to launch, which may itself wait so.
const loading = "CUDA_MODULE_LOADING"

// withLoading returns an environment with all kernels loaded at the start, unless
// it says itself how they are.
func withLoading(environment []string) []string {
	if slices.ContainsFunc(environment, func(v string) bool { return strings.HasPrefix(v, loading+"=") }) {
		return environment
	}
	return append(environment, loading+"=EAGER")
}

// sibling returns the path of the sibling of this binary.
func sibling() (string, error) {
	binary, err := os.Executable()
	if err != nil {
		return "", err
	}
	mine, err := buildinfo.ReadFile(binary)
	if err != nil {
		return "", err
	}
	return siblingOf(binary, setting(mine, "vcs.revision"))
}

// siblingOf returns the path of the sibling of a binary that was built from a
// revision, "" where none is known.
func siblingOf(binary, revision string) (string, error) {
	if filepath.Base(binary) == siblingName {
		return "", fmt.Errorf("%s was built without the tag cuda: build it with ./build.sh cuda", binary)
	}
	path := filepath.Join(filepath.Dir(binary), siblingName)
	its, err := buildinfo.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%s is not there: build it with ./build.sh cuda", path)
	case err != nil:
		return "", fmt.Errorf("%s: %w", path, err)
	case !slices.Contains(strings.Split(setting(its, "-tags"), ","), "cuda"):
		return "", fmt.Errorf("%s was built without the tag cuda: build it with ./build.sh cuda", path)
	}
	if other := setting(its, "vcs.revision"); other != revision {
		return "", fmt.Errorf("%s is of revision %q, %s of %q: build both with ./build.sh cuda", path, other, binary, revision)
	}
	return path, nil
}

// setting returns what a binary was built with, "" if it does not say.
func setting(info *buildinfo.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
