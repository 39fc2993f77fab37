package ref

import (
	"runtime"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// New returns the reference as a backend on host memory with elements of type
// d. It panics unless d is tensor.F32 or tensor.F64.
func New(d tensor.DType) kernel.Backend {
	do := map[tensor.DType]func(device.Stream, *kernel.Call){tensor.F32: do[float32], tensor.F64: do[float64]}[d]
	if do == nil {
		panic("ref: element type is not f32 or f64")
	}
	return &backend{kernel.NewCalls(d, tensor.Host, false, do)}
}

// NewRounded is New with dense products whose operands are rounded to bfloat16 (kernel.Backend.Products).
func NewRounded(d tensor.DType) kernel.Backend {
	do := map[tensor.DType]func(device.Stream, *kernel.Call){tensor.F32: doRounded[float32], tensor.F64: doRounded[float64]}[d]
	k := &backend{kernel.NewCalls(d, tensor.Host, false, do)}
	k.RoundProducts(tensor.BF16)
	return k
}

type backend struct{ kernel.Calls }

func (*backend) Name() string { return "ref" }

func (k *backend) Identity() string {
	if k.Products() == tensor.BF16 {
		return "ref " + runtime.GOARCH + " bf16"
	}
	return "ref " + runtime.GOARCH
}

// doRounded is do with dense products of rounded operands. Gradients of biases are sums of what was not
// rounded.
func doRounded[F Float](s device.Stream, call *kernel.Call) {
	c := *call
	switch c.Op {
	case kernel.MatmulBackwardWeight:
		if dbias := tensor.Of[F](c.Mem[1]); dbias != nil {
			sumRows(dbias, tensor.Of[F](c.Mem[2]), c.N)
		}
		c.Mem[1], c.Mem[2], c.Mem[3] = tensor.Mem{}, rounded[F](c.Mem[2]), rounded[F](c.Mem[3])
	case kernel.MatmulForward, kernel.MatmulBackwardInput, kernel.GroupedForward, kernel.GroupedBackwardInput, kernel.GroupedBackwardWeight:
		c.Mem[1], c.Mem[2] = rounded[F](c.Mem[1]), rounded[F](c.Mem[2])
	}
	do[F](s, &c)
}

// rounded returns the elements of m, each rounded to bfloat16.
func rounded[F Float](m tensor.Mem) tensor.Mem {
	x := tensor.Of[F](m)
	halves, y := make([]uint16, len(x)), make([]F, len(x))
	round(halves, x)
	addRounded(y, nil, halves)
	return tensor.From(y)
}

// do works at once: the stream has nothing to wait for.
func do[F Float](_ device.Stream, call *kernel.Call) {
	x := func(i int) []F { return tensor.Of[F](call.Mem[i]) }
	indices := func(i int) []int32 { return tensor.Of[int32](call.Mem[i]) }
	halves := func(i int) []uint16 { return tensor.Of[uint16](call.Mem[i]) }
	doubles := func(i int) []float64 { return tensor.Of[float64](call.Mem[i]) }
	longs := func(i int) []int64 { return tensor.Of[int64](call.Mem[i]) }
	words := func(i int) []uint64 { return tensor.Of[uint64](call.Mem[i]) }
	n, c, o, v := call.N, call.C, call.O, call.V
	experts := func(matrices, ends int) experts[F] { return experts[F]{x(matrices), call.Gap, indices(ends)} }
	csr := func(i int, values []F) csr[F] { return csr[F]{o, c, indices(i), indices(i + 1), values} }
	switch call.Op {
	case kernel.EmbeddingForward:
		embeddingForward(x(0), indices(1), indices(2), x(3), x(4), c)
	case kernel.EmbeddingBackward:
		embeddingBackward(x(0), x(1), x(2), indices(3), indices(4), c)
	case kernel.NormForward:
		NormForward(x(0), x(1), x(2), x(3), x(4), x(5), n, c, call.Eps)
	case kernel.NormBackwardInput:
		normBackwardInput(x(0), x(1), x(2), x(3), x(4), x(5), n, c)
	case kernel.NormBackwardWeight:
		normBackwardWeight(x(0), x(1), x(2), x(3), x(4), x(5), n, c)
	case kernel.MatmulForward:
		MatmulForward(x(0), x(1), x(2), x(3), n, c, o)
	case kernel.MatmulBackwardInput:
		matmulBackwardInput(x(0), x(1), x(2), n, c, o)
	case kernel.MatmulBackwardWeight:
		matmulBackwardWeight(x(0), x(1), x(2), x(3), n, c, o)
	case kernel.SpMMForward:
		spMMForward(x(0), x(1), csr(2, x(4)), x(5), n)
	case kernel.SpMMBackwardInput:
		spMMBackwardInput(x(0), x(1), csr(2, x(4)), n)
	case kernel.SDDMM:
		sddmm(x(0), x(1), x(2), x(3), csr(4, nil), n)
	case kernel.Rotary:
		rotary(x(0), indices(1), x(2), call.NH, c, call.HS, call.Inverse)
	case kernel.AttentionForward:
		attentionForward(x(0), x(1), x(2), indices(3), call.Longest, c, call.NH, call.KV)
	case kernel.AttentionBackward:
		attentionBackward(x(0), x(1), x(2), x(3), x(4), indices(5), call.Longest, c, call.NH, call.KV)
	case kernel.AttentionHash:
		attentionHash(indices(0), indices(1), doubles(2), x(3), indices(4), x(5), call.Buckets, call.Shared, c, call.NH)
	case kernel.ShareKeys:
		shareKeys(x(0), x(1), n, c, call.NH)
	case kernel.ShareKeysGradient:
		shareKeysGradient(x(0), x(1), x(2), n, c, call.NH)
	case kernel.SparseAttentionForward:
		sparseAttentionForward(x(0), x(1), x(2), indices(3), indices(4), indices(5), call.Longest, call.Buckets, c, call.NH)
	case kernel.SparseAttentionBackward:
		sparseAttentionBackward(x(0), x(1), x(2), x(3), x(4), indices(5), indices(6), indices(7), call.Longest, call.Buckets, c, call.NH)
	case kernel.GELUForward:
		geluForward(x(0), x(1))
	case kernel.GELUBackward:
		geluBackward(x(0), x(1), x(2))
	case kernel.SwiGLUForward:
		swiGLUForward(x(0), x(1), n, c)
	case kernel.SwiGLUBackward:
		swiGLUBackward(x(0), x(1), x(2), n, c)
	case kernel.Add, kernel.Accumulate:
		add(x(0), x(1), x(2))
	case kernel.Round:
		round(halves(0), x(1))
	case kernel.AccumulateRounded:
		addRounded(x(0), x(1), halves(2))
	case kernel.AccumulateFixed:
		accumulateFixed(longs(0), x(1))
	case kernel.AddFixed:
		addFixed(longs(0), longs(1))
	case kernel.RoundFixed:
		roundFixed(x(0), longs(1))
	case kernel.SoftmaxMerge:
		softmaxMerge(doubles(0), doubles(1), x(2), indices(3), n, v, call.First)
	case kernel.SoftmaxGradient:
		softmaxGradient(x(0), doubles(1), indices(2), call.Scale, n, v, call.First)
	case kernel.CrossEntropy:
		doubles(0)[0] = crossEntropy(doubles(1), doubles(2), x(3), indices(4), call.Scale, n, v, call.First)
	case kernel.Likeliest:
		likeliest(indices(0), x(1), v)
	case kernel.GatherRows:
		gatherRows(x(0), x(1), indices(2), x(3), c)
	case kernel.ScatterRows:
		scatterRows(x(0), x(1), indices(2), x(3), x(4), c)
	case kernel.GateGradient:
		gateGradient(x(0), x(1), x(2), x(3), indices(4), x(5), c)
	case kernel.TakeTokens:
		TakeTokens(indices(0), doubles(1), x(2), x(3), x(4), x(5), indices(6), call.Depths)
	case kernel.ListTokens:
		ListTokens(indices(0), x(1), indices(2), indices(3), indices(4), x(5), indices(6), indices(7), call.Depths)
	case kernel.CombineRows:
		combineRows(x(0), x(1), indices(2), x(3), n, call.K, c)
	case kernel.CombineGradient:
		combineGradient(x(0), x(1), x(2), indices(3), n, call.K, c)
	case kernel.SquashLogits:
		SquashLogits(doubles(0), x(1), x(2), x(3), n, call.E)
	case kernel.SquashGradient:
		SquashGradient(x(0), x(1), x(2), x(3), n, call.E)
	case kernel.BalanceScores:
		BalanceScores(doubles(0), x(1), call.Routing, n, call.E)
	case kernel.RouteTokens:
		RouteTokens(indices(0), x(1), doubles(2), doubles(3), x(4), doubles(5), call.Routing, n, call.E, call.K)
	case kernel.RouteGradient:
		RouteGradient(x(0), x(1), indices(2), doubles(3), call.Routing, n, call.E, call.K)
	case kernel.PlaceTokens:
		PlaceTokens(indices(0), indices(1), x(2), indices(3), indices(4), x(5), call.K, call.First)
	case kernel.GroupedForward:
		groupedForward(x(0), x(1), experts(2, 3), c, o)
	case kernel.GroupedBackwardInput:
		groupedBackwardInput(x(0), x(1), experts(2, 3), c, o)
	case kernel.GroupedBackwardWeight:
		groupedBackwardWeight(experts(0, 3), x(1), x(2), c, o)
	case kernel.SumSquares:
		sumSquares(doubles(0), x(1))
	case kernel.AdamWUpdate:
		adamW(x(0), x(2), x(3), x(4), call.AdamW)
	case kernel.Mask:
		mask(x(0), words(1))
	case kernel.MagnitudeHistogram:
		magnitudeHistogram(longs(0), x(1), words(2), call.Prefix, call.Fixed)
	case kernel.MaskWeights:
		mask(x(0), words(1))
	case kernel.SelectLargest:
		selectLargest(words(0), x(1), words(2), call.Prefix, call.Ties)
	case kernel.MaskRanks:
		maskRanks(indices(0), words(1), n)
	case kernel.Compact, kernel.CompactWide:
		compact(x(0), x(1), words(2))
	case kernel.CompactRows:
		compactRows(indices(0), indices(1), indices(2), indices(3), words(4), c)
	case kernel.BlockScores:
		blockScores(x(0), x(1), words(2), indices(3), c, o)
	case kernel.BlockMask:
		blockMask(words(0), words(1), indices(2), c, o)
	case kernel.PairScores:
		PairScores(x(0), x(1), words(2))
	case kernel.PairMask:
		PairMask(words(0), x(1), words(2), words(3))
	default:
		panic("ref: no case for " + call.Op.String())
	}
}
