//go:build blas && cgo

package cpu

import (
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/kerneltest"
)

// eachRounding runs f on a backend that emulates rounded products, and on one that makes them by oneDNN,
// unless oneDNN or the instructions are missing.
func eachRounding(t *testing.T, threads int, f func(t *testing.T, k *backend)) {
	for name, emulated := range map[string]bool{"emulated": true, "oneDNN": false} {
		t.Run(name, func(t *testing.T) {
			k, err := NewRounded(threads, emulated)
			if err != nil && !emulated {
				t.Skip(err)
			}
			expect.OK(t, err)
			t.Cleanup(func() { k.Close() })
			f(t, k.(*backend))
		})
	}
}

func TestRoundedConformance(t *testing.T) {
	eachRounding(t, 1, func(t *testing.T, k *backend) {
		kerneltest.Run(t, k, devcpu.New(device.NewWall()), tolerance)
	})
}

// shapes are of products whose rows and depths are cut into parts of several sizes, with heights of one
// slice and of more.
var shapes = [][3]int{{1, 64, 64}, {300, 96, 80}, {555, 33, 2400}, {129, 768, 1}, {2, 1, 7}, {700, 40, 2537}}

// rounded makes the products of a shape with weights w.
func rounded(k *backend, shape [3]int, w []float32) result {
	n, c, o := shape[0], shape[1], shape[2]
	r := result{}
	inp, dout, bias := normal(1, n*c), normal(3, n*o), normal(4, o)
	out, dinp, dweight, dbias := make([]float32, n*o), make([]float32, n*c), normal(5, o*c), normal(6, o)
	for range 2 {
		k.MatmulForward(nil, mem(out), mem(inp), mem(w), mem(bias), n, c, o)
		k.MatmulBackwardInput(nil, mem(dinp), mem(dout), mem(w), n, c, o)
	}
	k.MatmulBackwardWeight(nil, mem(dweight), mem(dbias), mem(dout), mem(inp), n, c, o)
	r.add(fmt.Sprint(shape), out, dinp, dweight, dbias)
	return r
}

// TestHeldWeightsChangeNoBit compares products with weights that are packed once with products that pack
// them each time, with another number of threads, and after the weights have changed.
func TestHeldWeightsChangeNoBit(t *testing.T) {
	eachRounding(t, 1, func(t *testing.T, k *backend) {
		b, err := NewRounded(3, k.way == emulation)
		expect.OK(t, err)
		defer b.Close()
		weights := map[[3]int][]float32{}
		for _, s := range shapes {
			weights[s] = normal(2, s[1]*s[2])
		}
		for turn := range 3 {
			want := result{}
			for _, s := range shapes {
				maps.Copy(want, rounded(k, s, weights[s]))
			}
			for _, held := range []*backend{k, b.(*backend)} {
				kernel.Hold(held, true)
				for _, s := range shapes[turn:] { // others are forgotten
					for call, bits := range rounded(held, s, weights[s]) {
						if !slices.Equal(bits, want[call]) {
							t.Errorf("turn %d, %s: other bits while weights are held", turn, call)
						}
					}
				}
				kernel.Hold(held, false)
			}
			for _, w := range weights {
				w[turn] += 1
			}
		}
	})
}

// TestFewRows: products of few rows and weights are right, whichever library makes them, and their bits
// depend neither on threads nor on whether weights are held.
func TestFewRows(t *testing.T) {
	if k := openNew(t, 1); !strings.Contains(k.way, "oneDNN") {
		t.Skip("oneDNN makes no products on this processor, or is not here")
	}
	one, three := openNew(t, 1), openNew(t, 3)
	plain := open(t, one.path, 1)
	differ := 0
	for _, s := range [][3]int{{16, 512, 768}, {77, 768, 300}, {128, 256, 1024}, {200, 300, 1200}, {300, 300, 100}, {700, 96, 1111}} {
		w := normal(2, s[1]*s[2])
		want, blas := rounded(one, s, w), rounded(plain, s, w)
		kernel.Hold(three, true)
		got := rounded(three, s, w)
		kernel.Hold(three, false)
		for call, bits := range got {
			if !slices.Equal(bits, want[call]) {
				t.Errorf("%s: other bits with three threads", call)
			}
			if !slices.Equal(bits, blas[call]) {
				differ++
			}
			for i, b := range bits {
				x, y := math.Float32frombits(uint32(b)), math.Float32frombits(uint32(blas[call][i]))
				if math.Abs(float64(x-y)) > 1e-3 {
					t.Fatalf("%s: element %d is %g, by the BLAS %g", call, i, x, y)
				}
			}
		}
	}
	if differ < 3 {
		t.Errorf("%d products by oneDNN, want at least three", differ)
	}
}

// TestLibraryIsNamed: a file for oneDNN that cannot be opened is an error where oneDNN would make products in
// float32, unless it is "none".
func TestLibraryIsNamed(t *testing.T) {
	if os.Getenv(libraryVariable) == "" { // oneDNN is opened once in a process
		if k := openNew(t, 1); !strings.Contains(k.way, "oneDNN") {
			t.Skip("oneDNN makes no products on this processor, or is not here")
		}
		for _, name := range []string{"absent.so", "none"} {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestLibraryIsNamed$")
			cmd.Env = append(os.Environ(), libraryVariable+"="+name)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
		return
	}
	k, err := New(1)
	if err == nil {
		k.Close()
	}
	if refused := err != nil && strings.Contains(err.Error(), "absent.so"); refused != (os.Getenv(libraryVariable) == "absent.so") {
		t.Errorf("%s=%s: error %v", libraryVariable, os.Getenv(libraryVariable), err)
	}
}

func openNew(t *testing.T, threads int) *backend {
	t.Helper()
	k, err := New(threads)
	expect.OK(t, err)
	t.Cleanup(func() { k.Close() })
	return k.(*backend)
}
