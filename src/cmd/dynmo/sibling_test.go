package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/device/cuda"
	"dynmo/src/expect"
)

func TestUseGPU(t *testing.T) {
	if err := useGPU("cpu"); err != nil {
		t.Errorf("a CPU: %v", err)
	}
	if _, err := cuda.Probe(); err == nil || cuda.Built {
		t.Skip("this machine has a GPU: asking for it would replace the test")
	}
	err := useGPU("cuda")
	if exitStatus(err) != exitUsage || !strings.HasPrefix(err.Error(), `device.kind = "cuda": `) {
		t.Errorf("a GPU that is not there: %v", err)
	}
}

func TestSiblingOf(t *testing.T) {
	test, err := os.Executable()
	expect.OK(t, err)
	binary, err := os.ReadFile(test)
	expect.OK(t, err)
	dir := t.TempDir()
	dynmo, other := filepath.Join(dir, "dynmo"), filepath.Join(dir, siblingName)
	for _, step := range []struct {
		name   string
		binary string
		make   []byte // content of the sibling; nil: there is no sibling
		want   string
	}{
		{"none", dynmo, nil, "is not there: build it with ./build.sh cuda"},
		{"no program", dynmo, []byte("x"), "dynmo-cuda: "},
		{"without the tag", dynmo, binary, "built without the tag cuda"},
		{"of itself", other, binary, "built without the tag cuda"},
	} {
		if step.make != nil {
			expect.OK(t, os.WriteFile(other, step.make, 0o777))
		}
		path, err := siblingOf(step.binary)
		if cuda.Built && path == other {
			continue // this test binary has the tag itself
		}
		if err == nil || !strings.Contains(err.Error(), step.want) {
			t.Errorf("%s: %q, %v, want %q", step.name, path, err, step.want)
		}
	}
}

func TestWithDriver(t *testing.T) {
	if got := withDriver([]string{"A=1"}); !slices.Equal(got, append([]string{"A=1"}, driverDefaults...)) {
		t.Errorf("%v", got)
	}
	chosen := []string{"CUDA_DEVICE_MAX_CONNECTIONS=1", "CUDA_MODULE_LOADING=LAZY"}
	if got := withDriver(chosen); !slices.Equal(got, chosen) {
		t.Errorf("%v, want what the user chose", got)
	}
}

func TestOfOneBuild(t *testing.T) {
	for _, test := range []struct {
		caller, mine string
		want         string
	}{{"", "a1", ""}, {"a1", "a1", ""}, {"b2", "a1", "of revision a1, dynmo of b2"}} {
		err := ofOneBuild(test.caller, test.mine)
		if (err == nil) != (test.want == "") || err != nil && (exitStatus(err) != exitUsage || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
