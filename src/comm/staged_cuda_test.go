//go:build cuda && cgo

package comm_test

import (
	"testing"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/device/cuda"
)

// Ranks share a GPU where there are fewer.
func TestStagedOnGPU(t *testing.T) {
	gpus, err := cuda.Visible()
	if err != nil {
		t.Fatal(err)
	}
	suite(t, func(tr comm.Transport) (device.Device, error) {
		return cuda.New(device.NewWall(), tr.Rank()%gpus)
	}, 1, 2, 3)
}
