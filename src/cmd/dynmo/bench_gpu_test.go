package main

import (
	"testing"

	"dynmo/src/device/cuda"
)

// Without a GPU the command says what is missing.
func TestBenchGPUWithoutOne(t *testing.T) {
	if _, err := cuda.Probe(); err == nil || cuda.Built {
		t.Skip("this machine has a GPU: asking for it would replace the test")
	}
	says("bench", "gpu", "--quick").refused(t, exitUsage, `device.kind = "cuda": `)
}
