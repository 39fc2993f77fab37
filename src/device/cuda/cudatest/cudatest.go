//go:build cuda && cgo

package cudatest

import (
	"strings"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cuda"
)

// New returns GPU 0 for a test and locks its goroutine to its thread. The test must free all memory
// before it ends.
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

// Emulated reports whether the driver is the emulator in csrc/emulate.
func Emulated(d *cuda.Device) bool { return strings.Contains(d.Describe().Name, "emulated") }
