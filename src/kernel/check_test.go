package kernel_test

import (
	"strings"
	"testing"

	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// TestImpossibleShapesPanic has what the conformance suite, which spoils one
// operand at a time, cannot reach.
func TestImpossibleShapesPanic(t *testing.T) {
	k := kernel.Check{DType: tensor.F32, Space: tensor.Host}
	f := func(n int) tensor.Mem { return tensor.From(make([]float32, n)) }
	i := func(n int) tensor.Mem { return tensor.From(make([]int32, n)) }
	hist := tensor.From(make([]int64, 256))
	for name, call := range map[string]func(){
		"heads do not divide channels": func() { k.AttentionForward(f(4), f(3), f(12), i(2), 1, 1, 1, 4, 3) },
		"no heads":                     func() { k.AttentionBackward(f(12), f(4), f(12), f(4), f(1), i(2), 1, 1, 1, 4, 0) },
		"negative dimensions":          func() { k.MatmulForward(f(6), f(2), f(3), tensor.Mem{}, -2, -1, -3) },
		"more tokens than sequences":   func() { k.AttentionForward(f(12), f(3), f(36), i(2), 1, 2, 3, 4, 1) },
		"part of a row":                func() { k.EmbeddingForward(f(6), i(3), i(3), f(2), f(3), 3, 2) },
		"no rows":                      func() { k.EmbeddingForward(f(6), i(3), i(3), f(2), f(0), 3, 2) },
		"fixed bits not in bytes":      func() { k.MagnitudeHistogram(hist, f(1), tensor.Mem{}, 1, 0, 4) },
		"all bits fixed":               func() { k.MagnitudeHistogram(hist, f(1), tensor.Mem{}, 1, 0, 32) },
		"prefix longer than fixed":     func() { k.MagnitudeHistogram(hist, f(1), tensor.Mem{}, 1, 256, 8) },
		"AdamW before the first step":  func() { k.AdamW(f(1), tensor.Mem{}, f(1), f(1), f(1), 1, kernel.AdamW{}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if message, _ := recover().(string); !strings.HasPrefix(message, "kernel: ") {
					t.Errorf("panic %q, want one that begins with kernel:", message)
				}
			}()
			call()
		})
	}
}

func TestAbsentOperandsPass(t *testing.T) {
	k := kernel.Check{DType: tensor.F32, Space: tensor.Device}
	f := func(n int) tensor.Mem {
		m := tensor.From(make([]float32, n))
		m.Space = tensor.Device
		return m
	}
	var absent tensor.Mem // in host space, as all absent memory
	k.MatmulForward(f(6), f(4), f(6), absent, 2, 2, 3)
	k.MatmulForward(absent, absent, f(6), f(3), 0, 2, 3)
	k.MatmulBackwardWeight(f(6), absent, f(6), f(4), 2, 2, 3)
}
