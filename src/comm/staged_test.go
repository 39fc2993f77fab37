package comm_test

import (
	"fmt"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/commtest"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
)

// On streams that do everything late, that differ in this, and that do all at once.
func TestStaged(t *testing.T) {
	t.Run("late", func(t *testing.T) { suite(t, late, 1, 2, 3) })
	t.Run("late compute", func(t *testing.T) { suite(t, lateCompute, 2) })
	t.Run("cpu", func(t *testing.T) {
		suite(t, func(comm.Transport) (device.Device, error) { return cpu.New(device.NewWall()), nil }, 2)
	})
}

// suite runs the suite of device transports on worlds of goroutines of these sizes.
func suite(t *testing.T, open func(comm.Transport) (device.Device, error), sizes ...int) {
	staged := commtest.DeviceWorld{
		Device: open,
		Transport: func(tr comm.Transport, d device.Device, compute device.Stream) (comm.DeviceTransport, error) {
			return comm.Staged(d, compute)(tr)
		},
	}
	for _, ranks := range sizes {
		for _, c := range commtest.DeviceCases() {
			t.Run(fmt.Sprintf("n=%d/%s", ranks, c.Name), func(t *testing.T) {
				err := local.Run(ranks, func(tr comm.Transport) error { return staged.Run(tr, c.Run) })
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}
