package ref_test

import (
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/kernel/kerneltest"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

func TestConformance(t *testing.T) {
	dev := cpu.New(device.NewWall())
	t.Run("f32", func(t *testing.T) { kerneltest.Run(t, ref.New(tensor.F32), dev, 1e-5) })
	if !testing.Short() { // the same code
		t.Run("rounded", func(t *testing.T) { kerneltest.Run(t, ref.NewRounded(tensor.F32), dev, 1e-5) })
		t.Run("f64", func(t *testing.T) { kerneltest.Run(t, ref.New(tensor.F64), dev, 1e-13) })
	}
}
