//go:build cuda && cgo

package nodebench

import (
	"strings"
	"testing"

	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/cuda"
	"dynmo/src/tensor"
)

// TestQuickFiguresOfAGPU: every figure of a GPU at small shapes is right. The library has an
// algorithm for each product.
func TestQuickFiguresOfAGPU(t *testing.T) {
	dev := cudatest.New(t)
	open := func(d tensor.DType) kernel.Backend {
		k, err := cuda.New(d)
		expect.OK(t, err)
		t.Cleanup(func() { k.Close() })
		return k
	}
	g := GPU{
		Device: dev, F32: open(tensor.F32), BF16: open(tensor.BF16), Rounds: 10, Quick: true,
		Emulated: cudatest.Emulated(dev),
	}
	results, err := g.Measure(nil)
	if err != nil {
		t.Error(err)
	}
	for _, r := range results {
		if r.Wrong > 0 || (r.Value > 0) == strings.HasSuffix(r.Name, "products_fallen_back") {
			t.Errorf("%s: %v %s, %d wrong", r.Name, r.Value, r.Unit, r.Wrong)
		}
	}
}
