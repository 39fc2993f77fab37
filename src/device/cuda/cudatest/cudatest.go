//go:build cuda && cgo

package cudatest

import (
	"strings"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cuda"
)

// New returns GPU 0 for a test, whose goroutine it ties to its thread. At its end
// the test must have freed all memory.
func New(t testing.TB) *cuda.Device {
	t.Helper()
	d, err := cuda.New(device.NewWall(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("on", d.Describe())
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
