//go:build cuda && cgo

package comm_test

import (
	"testing"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/device/cuda"
	"dynmo/src/expect"
)

// Ranks share a GPU where there are fewer.
func TestStagedOnGPU(t *testing.T) {
	gpus, err := cuda.Visible()
	expect.OK(t, err)
	suite(t, func(tr comm.Transport) (device.Device, error) {
		return cuda.New(device.NewWall(), tr.Rank()%gpus)
	}, 1, 2, 3)
}
