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
// same arguments: it must be called before MPI starts. The error names what is
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

// callerVariable holds the revision of the binary that became the sibling.
const callerVariable = "DYNMO_CALLER_REVISION"

// ofOneBuild returns an error if a sibling was called by a binary of another
// revision; called by hand, it is on its own.
func ofOneBuild(caller, own string) error {
	if caller == "" || caller == own {
		return nil
	}
	return usageError{fmt.Errorf("device.kind = \"cuda\": %s is of revision %s, dynmo of %s: build both with ./build.sh cuda", siblingName, own, caller)}
}

// driverDefaults are variables that the driver reads when it starts, if the user has not set them.
// A lazily loaded kernel waits, at its first launch, until all work of the GPU is done. That
// includes a message whose other half another rank has yet to launch, which may wait in the same
// way. Streams share the connections: with too few connections a message waits behind a kernel that
// waits for the message.
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
	info, err := buildinfo.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%s is not there: build it with ./build.sh cuda", path)
	case err != nil:
		return "", fmt.Errorf("%s: %w", path, err)
	case !slices.Contains(strings.Split(setting(info, "-tags"), ","), "cuda"):
		return "", fmt.Errorf("%s was built without the tag cuda: build it with ./build.sh cuda", path)
	}
	return path, nil
}

// setting returns a setting of a binary's build, "" if it is not recorded.
func setting(info *buildinfo.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
