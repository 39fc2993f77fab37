//go:build blas && cgo

package cpu

import (
	"math"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/kerneltest"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// tolerance is the unit of kerneltest's bounds: |x - ref| <= 1e-5·(|A||B|).
const tolerance = 1e-5

// open returns a backend that lives as long as the test.
func open(t testing.TB, path string, threads int) *backend {
	t.Helper()
	k, err := newBackend(path, threads)
	expect.OK(t, err)
	t.Cleanup(func() { k.Close() })
	return k
}

// eachPath runs f on every path this processor has.
func eachPath(t *testing.T, f func(t *testing.T, k *backend)) {
	for _, path := range availablePaths() {
		t.Run(path, func(t *testing.T) { f(t, open(t, path, 1)) })
	}
}

func normal(seed uint64, n int) []float32 {
	r := random.Keyed(seed)
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func TestConformance(t *testing.T) {
	eachPath(t, func(t *testing.T, k *backend) {
		kerneltest.Run(t, k, devcpu.New(device.NewWall()), tolerance)
	})
}

func TestPathIsChosenByName(t *testing.T) {
	for _, path := range availablePaths() {
		t.Setenv(pathVariable, path)
		k, err := New(1)
		expect.OK(t, err)
		if got := k.(*backend).Path(); got != path {
			t.Errorf("%s=%s gives path %s", pathVariable, path, got)
		}
	}
	t.Setenv(pathVariable, "mmx")
	if _, err := New(1); err == nil || !strings.Contains(err.Error(), "DYNMO_ISA=mmx: want one of generic") {
		t.Errorf("path mmx: error %v", err)
	}
}

// TestExponentialsInTails compares where e^x spans all of float32, which
// normal numbers do not reach.
func TestExponentialsInTails(t *testing.T) {
	gelu := func(x float64) float64 {
		return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	var inp []float32
	for x := -9.0; x < 40; x += 1.0 / 64 { // gelu(-9) is about -1e-28
		inp = append(inp, float32(x))
	}
	eachPath(t, func(t *testing.T, k *backend) {
		out := make([]float32, len(inp))
		k.GELUForward(nil, tensor.From(out), tensor.From(inp), len(inp))
		for i, x := range inp {
			if want := gelu(float64(x)); math.Abs(float64(out[i])-want) > tolerance*math.Abs(want) {
				t.Fatalf("gelu(%g) = %g, want %g", x, out[i], want)
			}
		}
		logits := []float32{0, -80, -86, -120, -3e38} // e^-88 would be subnormal
		loss, stats := make([]float64, 1), make([]float64, 3)
		k.CrossEntropy(nil, tensor.From(loss), tensor.From(stats), tensor.Mem{}, tensor.From(logits), tensor.From([]int32{3}),
			1, 1, len(logits), 0)
		want := []float64{1, math.Exp(-80), math.Exp(-86), -1, 0}
		for i := range want {
			if math.Abs(float64(logits[i])-want[i]) > tolerance*math.Abs(want[i]) {
				t.Errorf("gradient of logit %d is %g, want %g", i, logits[i], want[i])
			}
		}
		if loss[0] != 120 {
			t.Errorf("loss %g, want 120", loss[0])
		}
	})
}

// beforeAbyss returns n floats whose last one is the last of a page, with a page
// behind it that cannot be read.
func beforeAbyss(t *testing.T, n int) []float32 {
	t.Helper()
	page := unix.Getpagesize()
	b, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	expect.OK(t, err)
	t.Cleanup(func() { unix.Munmap(b) })
	expect.OK(t, unix.Mprotect(b[page:], unix.PROT_NONE))
	x := tensor.Of[float32](tensor.From(b[:page]))
	return x[len(x)-n:]
}

// TestNaNSurvives: a NaN that goes into a call comes out of it, wherever it is
// in the vectors that the call works by; and no call reads past its input.
func TestNaNSurvives(t *testing.T) {
	const n, c, nh = 5, 36, 3
	nan := float32(math.NaN())
	x := beforeAbyss(t, n*c)
	for name, call := range map[string]func(k *backend, x []float32) []float32{
		"LayerNorm": func(k *backend, x []float32) []float32 {
			out, stats := make([]float32, n*c), make([]float32, 2*n)
			k.NormForward(nil, tensor.From(out), tensor.From(stats[:n]), tensor.From(stats[n:]), tensor.From(x),
				tensor.From(normal(1, c)), tensor.From(normal(2, c)), n, c, 1e-5)
			return out
		},
		"Matmul": func(k *backend, x []float32) []float32 {
			out := make([]float32, n*7)
			k.MatmulForward(nil, tensor.From(out), tensor.From(x), tensor.From(normal(1, 7*c)), tensor.Mem{}, n, c, 7)
			return out
		},
		"SpMM": func(k *backend, x []float32) []float32 {
			out, rows, columns := make([]float32, n), []int32{0, c}, make([]int32, c)
			for i := range columns {
				columns[i] = int32(i)
			}
			k.SpMMForward(nil, tensor.From(out), tensor.From(x), kernel.CSR{Rows: 1, Cols: c, NNZ: c,
				RowPtr: tensor.From(rows), ColIdx: tensor.From(columns), Values: tensor.From(normal(1, c))}, tensor.Mem{}, n)
			return out
		},
		"Attention": func(k *backend, x []float32) []float32 {
			out, lse := make([]float32, n*c/3), make([]float32, n*nh)
			k.AttentionForward(nil, tensor.From(out), tensor.From(lse), tensor.From(x), tensor.From([]int32{0, n}), 1, n, n, c/3, nh, nh)
			return out
		},
		"RMSNorm": func(k *backend, x []float32) []float32 {
			out := make([]float32, n*c)
			k.NormForward(nil, tensor.From(out), tensor.Mem{}, tensor.From(make([]float32, n)), tensor.From(x), tensor.From(normal(1, c)), tensor.Mem{}, n, c, 1e-5)
			return out
		},
		"SwiGLU": func(k *backend, x []float32) []float32 {
			out := make([]float32, n*c/2)
			k.SwiGLUForward(nil, tensor.From(out), tensor.From(x), n, c/2)
			return out
		},
		"CombineRows": func(k *backend, x []float32) []float32 {
			out := make([]float32, n*c)
			k.CombineRows(nil, tensor.From(out), tensor.From(x), tensor.From([]int32{0, 1, 2, 3, 4}), tensor.From(normal(1, n)), n, 1, c)
			return out
		},
		"GELU": func(k *backend, x []float32) []float32 {
			out := make([]float32, n*c)
			k.GELUForward(nil, tensor.From(out), tensor.From(x), n*c)
			return out
		},
		"CrossEntropy": func(k *backend, x []float32) []float32 {
			loss := make([]float64, 1)
			k.CrossEntropy(nil, tensor.From(loss), tensor.From(make([]float64, 3*n)), tensor.Mem{}, tensor.From(x),
				tensor.From(make([]int32, n)), 1, n, c, 0)
			return []float32{float32(loss[0])}
		},
		"AdamW": func(k *backend, x []float32) []float32 {
			w := normal(1, n*c)
			k.AdamW(nil, tensor.From(w), tensor.Mem{}, tensor.From(make([]float32, n*c)), tensor.From(make([]float32, n*c)),
				tensor.From(x), n*c, kernel.AdamW{LR: 1, Beta1: 0.9, Beta2: 0.9, Eps: 1, GradScale: 1, Step: 1})
			return w
		},
		"SumSquares": func(k *backend, x []float32) []float32 {
			sum := make([]float64, kernel.SquareBlocks(n*c))
			k.SumSquares(nil, tensor.From(sum), tensor.From(x), n*c)
			return []float32{float32(sum[0])}
		},
	} {
		eachPath(t, func(t *testing.T, k *backend) {
			for at := range n * c {
				copy(x, normal(3, n*c))
				x[at] = nan
				if out := call(k, x); !slices.ContainsFunc(out, func(y float32) bool { return y != y }) {
					t.Fatalf("%s: NaN at %d of %d was lost", name, at, n*c)
				}
			}
		})
	}
}

func TestIndexOutsideItsTable(t *testing.T) {
	k := open(t, "generic", 1)
	zero := tensor.From(make([]int32, 1))
	x, stats, one := tensor.From(make([]float32, 6)), tensor.From(make([]float64, 3)), tensor.From(make([]float32, 1))
	for name, call := range map[string]func(index int32){
		"EmbeddingForward": func(token int32) {
			k.EmbeddingForward(nil, tensor.From(make([]float32, 2)), tensor.From([]int32{token}), zero, x, x, 1, 2)
		},
		"EmbeddingForward positions": func(position int32) {
			k.EmbeddingForward(nil, tensor.From(make([]float32, 2)), zero, tensor.From([]int32{position}), x, x, 1, 2)
		},
		"EmbeddingBackward": func(token int32) {
			k.EmbeddingBackward(nil, x, x, tensor.From(make([]float32, 2)), tensor.From([]int32{token}), zero, 1, 2)
		},
		"EmbeddingBackward positions": func(position int32) {
			k.EmbeddingBackward(nil, x, x, tensor.From(make([]float32, 2)), zero, tensor.From([]int32{position}), 1, 2)
		},
		"CrossEntropy": func(target int32) {
			k.CrossEntropy(nil, tensor.From(make([]float64, 1)), tensor.From(make([]float64, 3)), tensor.Mem{},
				tensor.From(make([]float32, 3)), tensor.From([]int32{target}), 1, 1, 3, 0)
		},
		// Slices cannot know where the vocabulary ends.
		"SoftmaxMerge": func(target int32) {
			k.SoftmaxMerge(nil, stats, tensor.Mem{}, one, tensor.From([]int32{target}), 1, 1, 0)
		},
		"SoftmaxGradient": func(target int32) {
			k.SoftmaxGradient(nil, one, stats, tensor.From([]int32{target}), 1, 1, 1, 0)
		},
	} {
		for index, want := range map[int32]bool{-1: true, 0: false, 2: false, 3: !strings.HasPrefix(name, "Softmax")} {
			func() {
				defer func() {
					if refused := recover() != nil; refused != want {
						t.Errorf("%s of index %d in a table of 3: refused %t, want %t", name, index, refused, want)
					}
				}()
				call(index)
			}()
		}
	}
}

func TestOffsetsOutsideTheTokens(t *testing.T) {
	k := open(t, "generic", 1)
	const n, c, longest = 4, 2, 3
	x := func(n int) tensor.Mem { return tensor.From(make([]float32, n)) }
	for _, offsets := range [][]int32{{0, 4, 4}, {0, 3, 2}, {1, 3, 4}, {0, 2, 5}, {0, -1, 4}, {0, 1, 4}} {
		want := offsets[1] != 1 || offsets[0] != 0
		for name, call := range map[string]func(){
			"forward": func() { k.AttentionForward(nil, x(n*c), x(n), x(3*n*c), tensor.From(offsets), 2, longest, n, c, 1, 1) },
			"backward": func() {
				k.AttentionBackward(nil, x(3*n*c), x(n*c), x(3*n*c), x(n*c), x(n), tensor.From(offsets), 2, longest, n, c, 1, 1)
			},
		} {
			func() {
				defer func() {
					if refused := recover() != nil; refused != want {
						t.Errorf("%s, offsets %v of 4 tokens, at most 3 each: refused %t, want %t", name, offsets, refused, want)
					}
				}()
				call()
			}()
		}
	}
}

// TestBucketsOutsideTheirHead: orders and starts that would index memory of others are
// refused, in both passes.
func TestBucketsOutsideTheirHead(t *testing.T) {
	k := open(t, "generic", 1)
	const n, c, buckets = 3, 2, 2
	x := func(n int) tensor.Mem { return tensor.From(make([]float32, n)) }
	offsets := tensor.From([]int32{0, n})
	for name, v := range map[string]struct {
		order, starts []int32
		refused       bool
	}{
		"right":             {[]int32{0, 2, 1, 1, 0, 2}, []int32{0, 2, 3, 0, 1, 3}, false},
		"a query beyond":    {[]int32{0, 3, 1, 1, 0, 2}, []int32{0, 2, 3, 0, 1, 3}, true},
		"a key before":      {[]int32{0, 2, 1, 1, -1, 2}, []int32{0, 2, 3, 0, 1, 3}, true},
		"starts later":      {[]int32{0, 2, 1, 1, 0, 2}, []int32{1, 2, 3, 0, 1, 3}, true},
		"ends later":        {[]int32{0, 2, 1, 1, 0, 2}, []int32{0, 2, 3, 0, 1, 4}, true},
		"starts in reverse": {[]int32{0, 2, 1, 1, 0, 2}, []int32{0, 4, 3, 0, 1, 3}, true},
	} {
		h := kernel.Buckets{Count: buckets, Order: tensor.From(v.order), Starts: tensor.From(v.starts)}
		for pass, call := range map[string]func(){
			"forward": func() { k.SparseAttentionForward(nil, x(n*c), x(n), x(3*n*c), offsets, h, 1, n, n, c, 1) },
			"backward": func() {
				k.SparseAttentionBackward(nil, x(3*n*c), x(n*c), x(3*n*c), x(n*c), x(n), offsets, h, 1, n, n, c, 1)
			},
		} {
			func() {
				defer func() {
					if refused := recover() != nil; refused != v.refused {
						t.Errorf("%s, %s: refused %t", name, pass, refused)
					}
				}()
				call()
			}()
		}
	}
}

func TestShortName(t *testing.T) {
	for _, c := range []struct{ description, core, want string }{
		{"OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH NO_AFFINITY SkylakeX MAX_THREADS=64", "SkylakeX", "OpenBLAS 0.3.21 SkylakeX"},
		{"Intel MKL", "", "Intel MKL"},
		{"BLIS", "", "BLIS"},
		{"", "", ""},
	} {
		if got := shortName(c.description, c.core); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}
