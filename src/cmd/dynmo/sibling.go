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
	if kind != "cuda" {
		return nil
	}
	if cuda.Built {
		return ofOneBuild(os.Getenv(callerVariable), revision())
	}
	if _, err := cuda.Probe(); err != nil {
		return usageError{fmt.Errorf("device.kind = \"cuda\": %w", err)}
	}
	path, err := sibling()
	if err != nil {
		return usageError{fmt.Errorf("device.kind = \"cuda\": %w", err)}
	}
	err = syscall.Exec(path, append([]string{path}, os.Args[1:]...), append(withDriver(os.Environ()), callerVariable+"="+revision()))
	return fmt.Errorf("%s: %w", path, err)
}

// callerVariable tells the sibling the revision of the binary that became it.
const callerVariable = "DYNMO_CALLER_REVISION"

// ofOneBuild returns an error if a sibling was called by a binary of another
// revision; called by hand, it is on its own.
func ofOneBuild(caller, mine string) error {
	if caller == "" || caller == mine {
		return nil
	}
	return usageError{fmt.Errorf("device.kind = \"cuda\": %s is of revision %s, dynmo of %s: build both with ./build.sh cuda", siblingName, mine, caller)}
}

// driverDefaults is what the driver reads when it starts, where the user says
// nothing else. Lazily, at its first launch, a kernel may be loaded only when all
// work of the GPU is done, and with it a message whose other half another rank has
// yet to launch, which may itself wait so. And streams share as many connections as
// there are: a message must not wait behind a kernel that waits for it.
var driverDefaults = []string{"CUDA_MODULE_LOADING=EAGER", "CUDA_DEVICE_MAX_CONNECTIONS=32"}

// withDriver returns an environment with driverDefaults.
func withDriver(environment []string) []string {
	for _, setting := range driverDefaults {
		name, _, _ := strings.Cut(setting, "=")
		if !slices.ContainsFunc(environment, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			environment = append(environment, setting)
		}
	}
	return environment
}

// sibling returns the path of the sibling of this binary.
func sibling() (string, error) {
	binary, err := os.Executable()
	if err != nil {
		return "", err
	}
	return siblingOf(binary)
}

// siblingOf returns the path of the sibling of a binary.
func siblingOf(binary string) (string, error) {
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
