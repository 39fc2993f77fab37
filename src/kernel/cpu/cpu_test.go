//go:build blas && cgo

package cpu

import (
	"testing"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/kernel/kerneltest"
)

// tolerance is the unit of kerneltest's bounds: |x - ref| <= 1e-5·(|A||B|).
const tolerance = 1e-5

// eachPath runs f on every path this processor has.
func eachPath(t *testing.T, f func(t *testing.T, k *Backend)) {
	for _, path := range Paths() {
		t.Run(path, func(t *testing.T) { f(t, newBackend(path, 1)) })
	}
}

func TestConformance(t *testing.T) {
	eachPath(t, func(t *testing.T, k *Backend) {
		kerneltest.Run(t, k, devcpu.New(device.NewWall()), tolerance)
	})
}
