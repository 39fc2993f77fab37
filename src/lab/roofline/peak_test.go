package roofline

import (
	"testing"

	"dynmo/src/tensor"
)

// TestPeak: GPUs are known by the names that nvidia-smi lists. The PCIe form of the H100 has another rate.
func TestPeak(t *testing.T) {
	for name, want := range map[string]float64{
		"NVIDIA H100 80GB HBM3": 989.4e12, "NVIDIA H200": 989.4e12, "NVIDIA A100-SXM4-80GB": 312e12, "NVIDIA A100 80GB PCIe": 312e12,
		"NVIDIA H100 PCIe": 0, "NVIDIA GeForce RTX 4090": 0, "": 0,
	} {
		if got := Peak(name, tensor.BF16); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
	if got := Peak("NVIDIA H100 80GB HBM3", tensor.F32); got != 67e12 {
		t.Errorf("float32 without TF32: %v", got)
	}
}
