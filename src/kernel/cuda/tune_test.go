//go:build cuda && cgo

package cuda

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// products are those that TestTune tries: one of each operation.
func products() []kernel.Product {
	var list []kernel.Product
	for _, op := range []kernel.Op{kernel.MatmulForward, kernel.MatmulForwardAdd, kernel.MatmulForwardGELU, kernel.MatmulBackwardInput, kernel.MatmulBackwardGELU, kernel.MatmulBackwardWeight} {
		list = append(list, kernel.Product{Op: op, N: 72, C: 64, O: 32})
	}
	return append(list, kernel.Product{Op: kernel.MatmulBackwardWeight, N: 72, C: 64, O: 32, Bias: true})
}

// TestTune: every product gets an algorithm whose results equal those of the library's own choice,
// up to rounding. Another backend with the same choices has the same bits; one with other choices
// has others.
func TestTune(t *testing.T) {
	dev := cudatest.New(t)
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
		k, again := openBackend(t, d).(*backend), openBackend(t, d).(*backend)
		s := dev.NewStream()
		used := dev.Used()
		text, err := k.Tune(dev, s, products())
		expect.OK(t, err)
		if dev.Used() != used {
			t.Errorf("%s: %d bytes are left", d, dev.Used()-used)
		}
		var all choices
		expect.OK(t, json.Unmarshal(text, &all))
		if want := map[tensor.DType]int{tensor.F32: 4, tensor.BF16: 7}[d]; len(all.Products) != want {
			t.Errorf("%s: %d products have an algorithm, want %d: %s", d, len(all.Products), want, text)
		}
		var differ bool
		for _, p := range products() {
			if d == tensor.F32 && fusedOnly(p.Op) {
				continue
			}
			expect.OK(t, again.Choose(text)) // a product with a bias may be made as the one without is
			want, got := made(t, k, p), made(t, again, p)
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v: the backend that was told the choices has other bits", d, p.Op)
			}
			list, err := k.algorithms(p)
			expect.OK(t, err)
			for _, c := range list {
				expect.OK(t, again.choose(c))
				got := made(t, again, p)
				if !near(got, want) {
					t.Errorf("%s: %v: an algorithm's results are wrong", d, p.Op)
				}
				differ = differ || !slices.Equal(got, want)
			}
		}
		if cudatest.Emulated(dev) && !differ {
			t.Errorf("%s: all algorithms have the same bits: choices would not show", d)
		}
	}
}

// made returns what a product makes of the operands that all trials have.
func made(t *testing.T, k *backend, p kernel.Product) []float32 {
	t.Helper()
	dev := cudatest.New(t)
	m, err := newTrial(dev, dev.NewStream(), p, k.DType())
	expect.OK(t, err)
	defer m.free()
	list, err := m.make(k)
	expect.OK(t, err)
	return list
}

// TestChooseRefuses: what is no text of Tune, is of another library, or names an algorithm
// that there is not, is an error that says so.
func TestChooseRefuses(t *testing.T) {
	dev := cudatest.New(t)
	k := openBackend(t, tensor.BF16).(*backend)
	text, err := k.Tune(dev, dev.NewStream(), products()[:1])
	expect.OK(t, err)
	var all choices
	expect.OK(t, json.Unmarshal(text, &all))
	clear(all.Products[0].Algorithm[:])
	damaged, err := json.Marshal(all)
	expect.OK(t, err)
	for want, text := range map[string][]byte{
		"algorithms of products: unexpected end": text[:len(text)-1],
		"this is":                                bytes.Replace(text, []byte("cublasLt"), []byte("cublasLt 9"), 1),
		"algorithm of product [32 72 64":         damaged,
	} {
		if err := k.Choose(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

// TestFallbacksCount: a product of single channels, which the library lacks, is counted.
func TestFallbacksCount(t *testing.T) {
	k := openBackend(t, tensor.BF16).(*backend)
	for i, c := range []int{64, 1} {
		made(t, k, kernel.Product{Op: kernel.MatmulForward, N: 8, C: c, O: 16})
		if got := k.Fallbacks(); got != int64(i) {
			t.Errorf("%d products without an algorithm, want %d", got, i)
		}
	}
}
