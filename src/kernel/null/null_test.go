package null_test

import (
	"math"
	"runtime"
	"slices"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/kernel"
	"dynmo/src/kernel/kerneltest"
	"dynmo/src/kernel/null"
	"dynmo/src/tensor"
)

func TestChecks(t *testing.T) {
	kerneltest.RunChecks(t, null.New(device.NewWall(), nil), cpu.New(device.NewWall()))
}

// f returns n float32 elements.
func f(n int) tensor.Mem { return tensor.From(make([]float32, n)) }

// i returns n int32 elements.
func i(n int) tensor.Mem { return tensor.From(make([]int32, n)) }

func TestCallsAreDescribed(t *testing.T) {
	var got []kernel.Call
	k := null.New(device.NewWall(), func(c *kernel.Call) float64 { got = append(got, *c); return 0 })
	const b, s, c, o, v, nh = 2, 3, 4, 5, 7, 2 // s: tokens of a sequence
	const n = b * s
	w := kernel.CSR{Rows: o, Cols: c, NNZ: 9, RowPtr: i(o + 1), ColIdx: i(9), Values: f(9)}
	scalar, mask := tensor.From(make([]float64, 1)), tensor.From(make([]uint64, 1))

	k.EmbeddingForward(nil, f(n*c), i(n), i(n), f(v*c), f(s*c), n, c)
	k.EmbeddingBackward(nil, f(v*c), f(s*c), f(n*c), i(n), i(n), n, c)
	k.NormForward(nil, f(n*c), f(n), f(n), f(n*c), f(c), f(c), n, c, 1e-5)
	k.NormBackwardInput(nil, f(n*c), f(n*c), f(n*c), f(n), f(n), f(c), n, c)
	k.NormBackwardWeight(nil, f(c), f(c), f(n*c), f(n*c), f(n), f(n), n, c)
	k.MatmulForward(nil, f(n*o), f(n*c), f(o*c), f(o), n, c, o)
	k.MatmulBackwardInput(nil, f(n*c), f(n*o), f(o*c), n, c, o)
	k.MatmulBackwardWeight(nil, f(o*c), f(o), f(n*o), f(n*c), n, c, o)
	k.SpMMForward(nil, f(n*o), f(n*c), w, f(o), n)
	k.SpMMBackwardInput(nil, f(n*c), f(n*o), w, n)
	k.SDDMM(nil, f(9), f(o), f(n*o), f(n*c), w, n)
	k.AttentionForward(nil, f(n*c), f(b*nh*s), f(n*3*c), i(b+1), b, s, n, c, nh, nh)
	k.AttentionBackward(nil, f(n*3*c), f(n*c), f(n*3*c), f(n*c), f(b*nh*s), i(b+1), b, s, n, c, nh, nh)
	k.GELUForward(nil, f(n), f(n), n)
	k.GELUBackward(nil, f(n), f(n), f(n), n)
	k.Add(nil, f(n), f(n), f(n), n)
	stats := tensor.From(make([]float64, 3*n))
	k.SoftmaxMerge(nil, stats, stats, f(n*v), i(n), n, v, 2)
	k.SoftmaxGradient(nil, f(n*v), stats, i(n), 1, n, v, 2)
	k.CrossEntropy(nil, scalar, stats, stats, f(n*v), i(n), 1, n, v, 2)
	k.Likeliest(nil, i(n), f(n*v), n, v)
	k.SumSquares(nil, scalar, f(n), n)
	k.AdamW(nil, f(n), tensor.Mem{}, f(n), f(n), f(n), n, kernel.AdamW{Step: 1})
	k.Mask(nil, f(n), mask, n)
	k.MagnitudeHistogram(nil, tensor.From(make([]int64, 256)), f(n), mask, n, 0, 0)
	k.Accumulate(nil, f(n), f(n), f(n), n)
	half := tensor.From(make([]uint16, n))
	k.Round(nil, half, f(n), n)
	k.AccumulateRounded(nil, f(n), f(n), half, n)
	sum := tensor.From(make([]int64, kernel.FixedWords(n)))
	k.AccumulateFixed(nil, sum, f(n), n)
	k.AddFixed(nil, sum, sum, n)
	k.RoundFixed(nil, f(n), sum, n)
	k.NormBackwardInputTo(cpu.New(device.NewWall()).NewStream(), f(n*c), f(n*c), f(n*c), f(n*c), f(n), f(n), f(c), n, c)
	k.MatmulForwardAdd(nil, f(n*o), f(n*c), f(o*c), f(o), f(n*o), n, c, o)
	k.MatmulForwardGELU(nil, f(n*o), f(n*o), f(n*c), f(o*c), f(o), n, c, o)
	k.MatmulBackwardGELU(nil, f(n*c), f(n*o), f(o*c), f(n*c), n, c, o)
	k.NormForward(nil, f(n*c), tensor.Mem{}, f(n), f(n*c), f(c), tensor.Mem{}, n, c, 1e-5)
	k.NormBackwardInput(nil, f(n*c), f(n*c), f(n*c), tensor.Mem{}, f(n), f(c), n, c)
	k.NormBackwardWeight(nil, f(c), tensor.Mem{}, f(n*c), f(n*c), tensor.Mem{}, f(n), n, c)
	k.Rotary(nil, f(n*5), i(n), f(3*2), n, nh, 5, 2, true)
	k.AttentionForward(nil, f(n*c), f(b*nh*s), f(n*2*c), i(b+1), b, s, n, c, nh, 1)
	k.AttentionBackward(nil, f(n*2*c), f(n*c), f(n*2*c), f(n*c), f(b*nh*s), i(b+1), b, s, n, c, nh, 1)
	k.SwiGLUForward(nil, f(n*c), f(n*2*c), n, c)
	k.SwiGLUBackward(nil, f(n*2*c), f(n*c), f(n*2*c), n, c)
	k.CombineRows(nil, f(n*c), f(7*c), i(n*3), f(n*3), n, 3, c)
	k.CombineGradient(nil, f(n*3), f(n*c), f(7*c), i(n*3), n, 3, c)
	router, readings := tensor.From(make([]float64, 2*n*4)), tensor.From(make([]float64, 8))
	k.SquashLogits(nil, router, f(n*4), f(n*4), f(16), n, 4)
	k.SquashGradient(nil, f(n*4), f(n*4), f(n*4), f(16), n, 4)
	k.BalanceScores(nil, kernel.Routing{}, router, f(n*4), n, 4)
	k.RouteTokens(nil, kernel.Routing{}, i(n*3), f(n*3), router, readings, f(n*4), tensor.Mem{}, n, 4, 3)
	k.RouteGradient(nil, kernel.Routing{}, f(n*4), f(n*3), i(n*3), router, n, 4, 3)
	k.PlaceTokens(nil, i(n*3), i(n*3), f(n*3), i(5), i(n*3), f(n*3), n, 4, 3, 0)
	k.TakeTokens(nil, kernel.Depths{}, i(n), tensor.From(make([]float64, 5)), f(n), tensor.Mem{}, f(n), tensor.Mem{}, i(b+1), n, b)
	k.ListTokens(nil, kernel.Depths{}, i(4), f(8), i(4), i(b+1), i(n), f(n), i(n), i(b+1), n, b, 4)
	k.GroupedForward(nil, f(n*o), f(n*c), f(2*o*c+3), i(3), n, c, o, 2, 3)
	k.GroupedBackwardInput(nil, f(n*c), f(n*o), f(2*o*c+3), i(3), n, c, o, 2, 3)
	k.GroupedBackwardWeight(nil, f(2*o*c+3), f(n*o), f(n*c), i(3), n, c, o, 2, 3)

	want := []struct {
		op    kernel.Op
		dims  kernel.Dims
		flops float64
	}{
		{kernel.EmbeddingForward, kernel.Dims{N: n, C: c}, 24},
		{kernel.EmbeddingBackward, kernel.Dims{N: n, C: c}, 24},
		{kernel.NormForward, kernel.Dims{N: n, C: c}, 24},
		{kernel.NormBackwardInput, kernel.Dims{N: n, C: c}, 24},
		{kernel.NormBackwardWeight, kernel.Dims{N: n, C: c}, 24},
		{kernel.MatmulForward, kernel.Dims{N: n, C: c, O: o}, 240},
		{kernel.MatmulBackwardInput, kernel.Dims{N: n, C: c, O: o}, 240},
		{kernel.MatmulBackwardWeight, kernel.Dims{N: n, C: c, O: o}, 240},
		{kernel.SpMMForward, kernel.Dims{N: n, C: c, O: o, NNZ: 9}, 108},
		{kernel.SpMMBackwardInput, kernel.Dims{N: n, C: c, O: o, NNZ: 9}, 108},
		{kernel.SDDMM, kernel.Dims{N: n, C: c, O: o, NNZ: 9}, 108},
		{kernel.AttentionForward, kernel.Dims{B: b, Longest: s, N: n, C: c, NH: nh, KV: nh}, 144},
		{kernel.AttentionBackward, kernel.Dims{B: b, Longest: s, N: n, C: c, NH: nh, KV: nh}, 360},
		{kernel.GELUForward, kernel.Dims{N: n}, 6},
		{kernel.GELUBackward, kernel.Dims{N: n}, 6},
		{kernel.Add, kernel.Dims{N: n}, 6},
		{kernel.SoftmaxMerge, kernel.Dims{N: n, V: v}, 42},
		{kernel.SoftmaxGradient, kernel.Dims{N: n, V: v}, 42},
		{kernel.CrossEntropy, kernel.Dims{N: n, V: v}, 42},
		{kernel.Likeliest, kernel.Dims{N: n, V: v}, 42},
		{kernel.SumSquares, kernel.Dims{N: n}, 6},
		{kernel.AdamWUpdate, kernel.Dims{N: n}, 6},
		{kernel.Mask, kernel.Dims{N: n}, 6},
		{kernel.MagnitudeHistogram, kernel.Dims{N: n}, 6},
		{kernel.Accumulate, kernel.Dims{N: n}, 6},
		{kernel.Round, kernel.Dims{N: n}, 6},
		{kernel.AccumulateRounded, kernel.Dims{N: n}, 6},
		{kernel.AccumulateFixed, kernel.Dims{N: n}, 6},
		{kernel.AddFixed, kernel.Dims{N: n}, 6},
		{kernel.RoundFixed, kernel.Dims{N: n}, 6},
		// the calls of two operations, one after the other
		{kernel.NormBackwardInput, kernel.Dims{N: n, C: c}, 24},
		{kernel.MatmulForward, kernel.Dims{N: n, C: c, O: o}, 240},
		{kernel.Add, kernel.Dims{N: n * o}, 30},
		{kernel.MatmulForward, kernel.Dims{N: n, C: c, O: o}, 240},
		{kernel.GELUForward, kernel.Dims{N: n * o}, 30},
		{kernel.MatmulBackwardInput, kernel.Dims{N: n, C: c, O: o}, 240},
		{kernel.GELUBackward, kernel.Dims{N: n * c}, 24},
		{kernel.NormForward, kernel.Dims{N: n, C: c}, 24},
		{kernel.NormBackwardInput, kernel.Dims{N: n, C: c}, 24},
		{kernel.NormBackwardWeight, kernel.Dims{N: n, C: c}, 24},
		{kernel.Rotary, kernel.Dims{N: n, C: 5, NH: nh, HS: 2}, 72},
		{kernel.AttentionForward, kernel.Dims{B: b, Longest: s, N: n, C: c, NH: nh, KV: 1}, 144},
		{kernel.AttentionBackward, kernel.Dims{B: b, Longest: s, N: n, C: c, NH: nh, KV: 1}, 360},
		{kernel.SwiGLUForward, kernel.Dims{N: n, C: c}, 24},
		{kernel.SwiGLUBackward, kernel.Dims{N: n, C: c}, 48},
		{kernel.CombineRows, kernel.Dims{N: n, C: c, K: 3}, 144},
		{kernel.CombineGradient, kernel.Dims{N: n, C: c, K: 3}, 144},
		{kernel.SquashLogits, kernel.Dims{N: n, E: 4}, 192},
		{kernel.SquashGradient, kernel.Dims{N: n, E: 4}, 192},
		{kernel.BalanceScores, kernel.Dims{N: n, E: 4}, 1536},
		{kernel.RouteTokens, kernel.Dims{N: n, K: 3, E: 4}, 192},
		{kernel.RouteGradient, kernel.Dims{N: n, K: 3, E: 4}, 96},
		{kernel.PlaceTokens, kernel.Dims{N: n, K: 3, E: 4}, 18},
		{kernel.TakeTokens, kernel.Dims{N: n, B: b}, 48},
		{kernel.ListTokens, kernel.Dims{N: n, B: b, K: 4}, 24},
		{kernel.GroupedForward, kernel.Dims{N: n, C: c, O: o, E: 2, Gap: 3}, 240},
		{kernel.GroupedBackwardInput, kernel.Dims{N: n, C: c, O: o, E: 2, Gap: 3}, 240},
		{kernel.GroupedBackwardWeight, kernel.Dims{N: n, C: c, O: o, E: 2, Gap: 3}, 240},
	}
	if len(got) != len(want) {
		t.Fatalf("%d calls described, want %d", len(got), len(want))
	}
	for j, w := range want {
		if got[j].Op != w.op || got[j].Dims != w.dims || got[j].Flops() != w.flops {
			t.Errorf("got %+v of %g flops, want %s %+v of %g", got[j], got[j].Flops(), w.op, w.dims, w.flops)
		}
	}
}

func TestVirtualClockMovesByTheCost(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	clock := device.NewVirtual()
	const rate = 0.01 // flops per second, so slow that CPU time does not count
	k := null.New(clock, null.AtRate(rate))
	for range 3 {
		k.MatmulForward(nil, f(6), f(8), f(12), tensor.Mem{}, 2, 4, 3)
	}
	const want = 3 * 2 * 2 * 4 * 3 / rate
	if got := clock.Now(); math.Abs(got-want) > 1e-3*want {
		t.Errorf("clock reads %g s, want %g s", got, want)
	}
}

func TestOnlyScalarsAreWritten(t *testing.T) {
	k := null.New(device.NewWall(), nil)
	scalar, x := []float64{5}, []float32{1, 2, 3}
	k.CrossEntropy(nil, tensor.From(scalar), tensor.From(make([]float64, 3)), tensor.Mem{}, tensor.From(x), i(1), 1, 1, 3, 0)
	if scalar[0] != 0 {
		t.Errorf("loss is %g, want 0", scalar[0])
	}
	scalar[0] = 5
	k.SumSquares(nil, tensor.From(scalar), tensor.From(x), 3)
	if scalar[0] != 0 {
		t.Errorf("sum of squares is %g, want 0", scalar[0])
	}
	k.GELUForward(nil, tensor.From(x), f(3), 3)
	if !slices.Equal(x, []float32{1, 2, 3}) {
		t.Errorf("elements became %v", x)
	}
}
