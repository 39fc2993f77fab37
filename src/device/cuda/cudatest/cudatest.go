//go:build cuda && cgo

package cudatest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cuda"
)

// Main runs the tests of a package and says on standard error what they run on.
// A test binary with the tag cuda gets here only if its driver knows a GPU.
func Main(m *testing.M) {
	where := "no GPU"
	if driver, err := cuda.Probe(); err == nil {
		where = driver.String() + ": " + strings.Join(driver.GPUs, ", ")
	}
	fmt.Fprintln(os.Stderr, "tests run on", where)
	m.Run()
}

// New returns GPU 0 for a test, whose goroutine it ties to its thread. At its end
// the test must have freed all memory.
func New(t testing.TB) *cuda.Device {
	t.Helper()
	d, err := cuda.New(device.NewWall(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.Used() != 0 && !t.Failed() {
			t.Errorf("%d bytes of the GPU were not freed", d.Used())
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Emulated reports whether the driver is the stand-in of csrc/emulate.
func Emulated(d *cuda.Device) bool { return strings.Contains(d.Describe().Name, "emulated") }
