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

// siblingName is the file beside this binary that is built from the same source with the tag cuda.
// It is a separate file because it cannot even start without a GPU.
const siblingName = "dynmo-cuda"

// useGPU makes sure that this process can use the kind of device that the settings ask for. For
// "cuda" the process becomes the sibling, with the same arguments, unless it is the sibling
// already. So useGPU must be called before MPI starts. The error names the missing part: a driver,
// a GPU, or the sibling.
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

// ofOneBuild returns an error if a binary of another revision called the sibling. A sibling that a
// user starts has no caller.
func ofOneBuild(caller, own string) error {
	if caller == "" || caller == own {
		return nil
	}
	return usageError{fmt.Errorf("device.kind = \"cuda\": %s is of revision %s, dynmo of %s: build both with ./build.sh cuda", siblingName, own, caller)}
}

// driverDefaults are variables for the driver, unless the user has set them. They avoid deadlocks
// of messages. A lazily loaded kernel waits, at its first launch, until all work of the GPU is
// done. That includes a message whose other half waits in the same way on another rank. Streams
// share connections: with too few, a message waits behind a kernel that waits for the message.
var driverDefaults = []string{"CUDA_MODULE_LOADING=EAGER", "CUDA_DEVICE_MAX_CONNECTIONS=32"}

// withDriver adds driverDefaults to an environment.
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

// setting returns a build setting of a binary; "" if it is not recorded.
func setting(info *buildinfo.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
