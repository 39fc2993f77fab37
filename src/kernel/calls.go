package kernel

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Calls is the part of Backend that all backends share. A backend embeds a Calls, which has the typed
// calls. A typed call makes a Call, verifies it and gives it to the backend's own function do.
type Calls struct {
	elements tensor.DType
	products tensor.DType
	space    tensor.Space
	sizes    [kinds]int64 // bytes of an element of each kind; 0 of Master where it is absent
	do       func(device.Stream, *Call)
	fused    bool
	// pending is the call under way, kept here so that no call is allocated. Operands and numbers
	// that its operation does not have are left over from earlier calls.
	pending Call
}

// NewCalls returns the Calls of a backend. d is the backend's DType, and space the space of its
// memory. do makes one verified call; it must not keep the Call.
//
// Some operations are two others in a row: NormBackwardInputTo, MatmulForwardAdd, MatmulForwardGELU,
// MatmulBackwardGELU and CombineRowsAdd. fused says that do makes these in one. Otherwise Calls gives
// do the two operations one after the other. The intermediate result is in an output operand.
func NewCalls(d tensor.DType, space tensor.Space, fused bool, do func(device.Stream, *Call)) Calls {
	k := Calls{elements: d, products: d, space: space, fused: fused, do: do}
	for kind := range kinds {
		k.sizes[kind] = kind.Type(d).Size()
	}
	if d == d.Wide() {
		k.sizes[Master] = 0
	}
	return k
}

// Around makes every later call of do run inside around. around gets a function, which makes the call,
// and must call it once.
func (k *Calls) Around(around func(call func())) {
	do := k.do
	k.do = func(s device.Stream, c *Call) { around(func() { do(s, c) }) }
}

// DType returns the element type of weights and activations.
func (k *Calls) DType() tensor.DType { return k.elements }

// RoundProducts makes Products return d. The backend's function do rounds the operands.
func (k *Calls) RoundProducts(d tensor.DType) { k.products = d }

// Products returns the type that operands of dense products are rounded to.
func (k *Calls) Products() tensor.DType { return k.products }

// Close does nothing.
func (*Calls) Close() error { return nil }

// Verify panics if the dimensions or numbers of a call are impossible. It panics if an operand does not
// have the length of its shape or lies in the wrong space. It does not read operands.
func (k *Calls) Verify(c *Call) {
	op := c.Op.Of()
	if problem := c.impossible(); problem != "" {
		panic("kernel: " + op.Name + ": " + problem)
	}
	for i := range op.Operands {
		p, m := &op.Operands[i], &c.Mem[i]
		bytes := int64(p.Count(&c.Dims)) * k.sizes[p.Kind]
		switch {
		case p.Optional && m.IsZero():
			continue
		case p.Kind < Table:
		case bytes == 0 || m.Bytes == 0 || m.Bytes%bytes != 0:
			bytes = -1 // not m's
		default:
			bytes = m.Bytes
		}
		if m.Bytes != bytes {
			panic("kernel: " + op.Name + ": " + p.Name + " has the wrong length")
		}
		if m.Space != k.space && bytes != 0 { // an empty operand may be absent, whatever its space
			panic("kernel: " + op.Name + ": " + p.Name + " is in the wrong space")
		}
	}
}

// impossible returns what is wrong with the dimensions and numbers of a call, "" if nothing is wrong.
func (c *Call) impossible() string {
	d := &c.Dims
	switch {
	case d.N|d.C|d.O|d.NNZ|d.V|d.B|d.Longest|d.NH|d.KV|d.HS|d.K|d.Buckets|d.E|d.Gap < 0:
		return "a dimension is negative"
	case c.Op == SoftmaxMerge || c.Op == SoftmaxGradient || c.Op == CrossEntropy:
		if c.First < 0 {
			return "the first column is negative"
		}
	case c.Op == NormForward:
		if !(c.Eps >= 0) {
			return "eps is not a number from 0"
		}
		if c.Mem[1].IsZero() != c.Mem[5].IsZero() && d.N > 0 && d.C > 0 {
			return "there is a mean, or a bias, without the other"
		}
	case c.Op == NormBackwardWeight:
		if c.Mem[1].IsZero() != c.Mem[4].IsZero() && d.N > 0 && d.C > 0 {
			return "there is a mean, or a gradient of a bias, without the other"
		}
	case c.Op == SpMMForward || c.Op == SpMMBackwardInput || c.Op == SDDMM:
		if c.Blocks && (d.O%Block != 0 || d.C%Block != 0 || d.NNZ%(Block*Block) != 0) {
			return "the entries are no whole blocks"
		}
	case c.Op == Rotary:
		if d.HS%2 != 0 {
			return "channels of a head are odd"
		}
		if d.NH*d.HS > d.C {
			return "heads are wider than a row"
		}
	case (c.Op == ShareKeys || c.Op == ShareKeysGradient) && (d.NH < 1 || d.C%d.NH != 0):
		return "channels are not a multiple of heads"
	case AttentionForward <= c.Op && c.Op <= SparseAttentionBackward:
		if d.NH < 1 || d.C%d.NH != 0 {
			return "channels are not a multiple of heads"
		}
		if c.Op <= AttentionBackward && (d.KV < 1 || d.NH%d.KV != 0) {
			return "heads are not a multiple of those that have keys"
		}
		if d.N > d.B*d.Longest {
			return "there are more tokens than sequences of the longest length hold"
		}
		if c.Op >= AttentionHash && (d.Buckets < 1 || d.Buckets&(d.Buckets-1) != 0) {
			return "buckets are no power of two"
		}
	case c.Op == TakeTokens:
		if c.Mem[3].IsZero() != c.Mem[5].IsZero() && d.N > 0 {
			return "there are guesses, or gradients of them, without the other"
		}
	case c.Op == PlaceTokens:
		if c.First < 0 {
			return "the first expert is negative"
		}
	case c.Op == RouteTokens || c.Op == RouteGradient:
		if d.K < 1 || d.K > d.E {
			return "a token goes to no expert, or to more than there are"
		}
	case c.Op == AdamWUpdate:
		if c.AdamW.Step < 1 {
			return "steps count from 1"
		}
		if c.AdamW.Decayed < 0 || c.AdamW.Decayed > d.N {
			return "elements decay that are not there"
		}
	case c.Op == MagnitudeHistogram:
		if c.Fixed < 0 || c.Fixed > 24 || c.Fixed%8 != 0 {
			return "fixed bits are not 0, 8, 16 or 24"
		}
		if c.Prefix>>c.Fixed != 0 {
			return "prefix has more bits than are fixed"
		}
	case c.Op == SelectLargest:
		if c.Ties < 0 {
			return "fewer than no ties are kept"
		}
	case c.Op == CompactRows:
		if c.Mem[2].IsZero() && d.N != d.O*d.C {
			return "a dense matrix has other entries"
		}
	case c.Op == BlockScores && c.Mem[3].IsZero() || c.Op == BlockMask && c.Mem[2].IsZero():
		if d.NNZ != d.O*d.C {
			return "a dense matrix has other blocks"
		}
	}
	return ""
}

// Run verifies a call and makes it.
func (k *Calls) Run(s device.Stream, c Call) {
	k.pending = c
	k.run(s, c.Op, c.Dims, c.Mem[:len(c.Op.Of().Operands)]...)
}

// run verifies a call and makes it. The caller has put the call's numbers into k.pending.
func (k *Calls) run(s device.Stream, op Op, d Dims, operands ...tensor.Mem) {
	c := &k.pending
	c.Op, c.Dims = op, d
	copy(c.Mem[:], operands)
	k.Verify(c)
	if op.isTwo() && !k.fused {
		k.compose(s)
		return
	}
	k.do(s, c)
}

func (k *Calls) EmbeddingForward(s device.Stream, out, tokens, positions, wte, wpe tensor.Mem, n, c int) {
	k.run(s, EmbeddingForward, Dims{N: n, C: c}, out, tokens, positions, wte, wpe)
}

func (k *Calls) EmbeddingBackward(s device.Stream, dwte, dwpe, dout, tokens, positions tensor.Mem, n, c int) {
	k.run(s, EmbeddingBackward, Dims{N: n, C: c}, dwte, dwpe, dout, tokens, positions)
}

func (k *Calls) NormForward(s device.Stream, out, mean, rstd, inp, weight, bias tensor.Mem, n, c int, eps float64) {
	k.pending.Eps = eps
	k.run(s, NormForward, Dims{N: n, C: c}, out, mean, rstd, inp, weight, bias)
}

func (k *Calls) NormBackwardInput(s device.Stream, dinp, dout, inp, mean, rstd, weight tensor.Mem, n, c int) {
	k.run(s, NormBackwardInput, Dims{N: n, C: c}, dinp, dout, inp, mean, rstd, weight)
}

func (k *Calls) NormBackwardInputTo(s device.Stream, dinp, add, dout, inp, mean, rstd, weight tensor.Mem, n, c int) {
	k.run(s, NormBackwardInputTo, Dims{N: n, C: c}, dinp, add, dout, inp, mean, rstd, weight)
}

func (k *Calls) NormBackwardWeight(s device.Stream, dweight, dbias, dout, inp, mean, rstd tensor.Mem, n, c int) {
	k.run(s, NormBackwardWeight, Dims{N: n, C: c}, dweight, dbias, dout, inp, mean, rstd)
}

func (k *Calls) MatmulForward(s device.Stream, out, inp, weight, bias tensor.Mem, n, c, o int) {
	k.run(s, MatmulForward, Dims{N: n, C: c, O: o}, out, inp, weight, bias)
}

func (k *Calls) MatmulForwardAdd(s device.Stream, out, inp, weight, bias, add tensor.Mem, n, c, o int) {
	k.run(s, MatmulForwardAdd, Dims{N: n, C: c, O: o}, out, inp, weight, bias, add)
}

func (k *Calls) MatmulForwardGELU(s device.Stream, out, pre, inp, weight, bias tensor.Mem, n, c, o int) {
	k.run(s, MatmulForwardGELU, Dims{N: n, C: c, O: o}, out, pre, inp, weight, bias)
}

func (k *Calls) MatmulBackwardInput(s device.Stream, dinp, dout, weight tensor.Mem, n, c, o int) {
	k.run(s, MatmulBackwardInput, Dims{N: n, C: c, O: o}, dinp, dout, weight)
}

func (k *Calls) MatmulBackwardGELU(s device.Stream, dpre, dout, weight, pre tensor.Mem, n, c, o int) {
	k.run(s, MatmulBackwardGELU, Dims{N: n, C: c, O: o}, dpre, dout, weight, pre)
}

func (k *Calls) MatmulBackwardWeight(s device.Stream, dweight, dbias, dout, inp tensor.Mem, n, c, o int) {
	k.run(s, MatmulBackwardWeight, Dims{N: n, C: c, O: o}, dweight, dbias, dout, inp)
}

func (k *Calls) SpMMForward(s device.Stream, out, inp tensor.Mem, w CSR, bias tensor.Mem, n int) {
	k.pending.Blocks = w.Blocks
	k.run(s, SpMMForward, w.dims(n), out, inp, w.RowPtr, w.ColIdx, w.Values, bias)
}

func (k *Calls) SpMMBackwardInput(s device.Stream, dinp, dout tensor.Mem, w CSR, n int) {
	k.pending.Blocks = w.Blocks
	k.run(s, SpMMBackwardInput, w.dims(n), dinp, dout, w.RowPtr, w.ColIdx, w.Values)
}

func (k *Calls) SDDMM(s device.Stream, dvalues, dbias, dout, inp tensor.Mem, w CSR, n int) {
	k.pending.Blocks = w.Blocks
	k.run(s, SDDMM, w.dims(n), dvalues, dbias, dout, inp, w.RowPtr, w.ColIdx)
}

func (k *Calls) Rotary(s device.Stream, qkv, positions, table tensor.Mem, n, heads, width, hs int, inverse bool) {
	k.pending.Inverse = inverse
	k.run(s, Rotary, Dims{N: n, C: width, NH: heads, HS: hs}, qkv, positions, table)
}

func (k *Calls) AttentionForward(s device.Stream, out, lse, qkv, offsets tensor.Mem, b, longest, n, c, nh, kv int) {
	k.run(s, AttentionForward, Dims{B: b, Longest: longest, N: n, C: c, NH: nh, KV: kv}, out, lse, qkv, offsets)
}

func (k *Calls) AttentionBackward(s device.Stream, dqkv, dout, qkv, out, lse, offsets tensor.Mem, b, longest, n, c, nh, kv int) {
	k.run(s, AttentionBackward, Dims{B: b, Longest: longest, N: n, C: c, NH: nh, KV: kv}, dqkv, dout, qkv, out, lse, offsets)
}

func (k *Calls) ShareKeys(s device.Stream, qkv, qv tensor.Mem, n, c, nh int) {
	k.run(s, ShareKeys, Dims{N: n, C: c, NH: nh}, qkv, qv)
}

func (k *Calls) ShareKeysGradient(s device.Stream, dqv, dqkv, qkv tensor.Mem, n, c, nh int) {
	k.run(s, ShareKeysGradient, Dims{N: n, C: c, NH: nh}, dqv, dqkv, qkv)
}

func (k *Calls) AttentionHash(s device.Stream, h Buckets, pairs, qkv, offsets, projections tensor.Mem, b, longest, n, c, nh int) {
	k.pending.Shared = h.Shared
	k.run(s, AttentionHash, Dims{B: b, Longest: longest, N: n, C: c, NH: nh, Buckets: h.Count}, h.Order, h.Starts, pairs, qkv, offsets, projections)
}

func (k *Calls) SparseAttentionForward(s device.Stream, out, lse, qkv, offsets tensor.Mem, h Buckets, b, longest, n, c, nh int) {
	k.run(s, SparseAttentionForward, Dims{B: b, Longest: longest, N: n, C: c, NH: nh, Buckets: h.Count}, out, lse, qkv, offsets, h.Order, h.Starts)
}

func (k *Calls) SparseAttentionBackward(s device.Stream, dqkv, dout, qkv, out, lse, offsets tensor.Mem, h Buckets, b, longest, n, c, nh int) {
	k.run(s, SparseAttentionBackward, Dims{B: b, Longest: longest, N: n, C: c, NH: nh, Buckets: h.Count}, dqkv, dout, qkv, out, lse, offsets, h.Order, h.Starts)
}

func (k *Calls) GELUForward(s device.Stream, out, inp tensor.Mem, n int) {
	k.run(s, GELUForward, Dims{N: n}, out, inp)
}

func (k *Calls) GELUBackward(s device.Stream, dinp, inp, dout tensor.Mem, n int) {
	k.run(s, GELUBackward, Dims{N: n}, dinp, inp, dout)
}

func (k *Calls) SwiGLUForward(s device.Stream, out, gateup tensor.Mem, n, c int) {
	k.run(s, SwiGLUForward, Dims{N: n, C: c}, out, gateup)
}

func (k *Calls) SwiGLUBackward(s device.Stream, dgateup, dout, gateup tensor.Mem, n, c int) {
	k.run(s, SwiGLUBackward, Dims{N: n, C: c}, dgateup, dout, gateup)
}

func (k *Calls) Add(s device.Stream, out, a, b tensor.Mem, n int) {
	k.run(s, Add, Dims{N: n}, out, a, b)
}

func (k *Calls) Accumulate(s device.Stream, out, a, b tensor.Mem, n int) {
	k.run(s, Accumulate, Dims{N: n}, out, a, b)
}

func (k *Calls) Round(s device.Stream, out, x tensor.Mem, n int) {
	k.run(s, Round, Dims{N: n}, out, x)
}

func (k *Calls) AccumulateRounded(s device.Stream, out, a, b tensor.Mem, n int) {
	k.run(s, AccumulateRounded, Dims{N: n}, out, a, b)
}

func (k *Calls) SoftmaxMerge(s device.Stream, out, before, logits, targets tensor.Mem, n, v, first int) {
	k.pending.First = first
	k.run(s, SoftmaxMerge, Dims{N: n, V: v}, out, before, logits, targets)
}

func (k *Calls) SoftmaxGradient(s device.Stream, logits, stats, targets tensor.Mem, scale float64, n, v, first int) {
	k.pending.First, k.pending.Scale = first, scale
	k.run(s, SoftmaxGradient, Dims{N: n, V: v}, logits, stats, targets)
}

func (k *Calls) CrossEntropy(s device.Stream, loss, out, before, logits, targets tensor.Mem, scale float64, n, v, first int) {
	k.pending.First, k.pending.Scale = first, scale
	k.run(s, CrossEntropy, Dims{N: n, V: v}, loss, out, before, logits, targets)
}

func (k *Calls) GatherRows(s device.Stream, out, inp, rows, factor tensor.Mem, n, c int) {
	k.run(s, GatherRows, Dims{N: n, C: c}, out, inp, rows, factor)
}

func (k *Calls) ScatterRows(s device.Stream, out, add, rows, keep, factor tensor.Mem, n, c int) {
	k.run(s, ScatterRows, Dims{N: n, C: c}, out, add, rows, keep, factor)
}

func (k *Calls) GateGradient(s device.Stream, dlogits, dout, a, b, rows, factor tensor.Mem, n, c int) {
	k.run(s, GateGradient, Dims{N: n, C: c}, dlogits, dout, a, b, rows, factor)
}

func (k *Calls) CombineRows(s device.Stream, out, inp, rows, factor tensor.Mem, n, each, c int) {
	k.run(s, CombineRows, Dims{N: n, C: c, K: each}, out, inp, rows, factor)
}

func (k *Calls) CombineRowsAdd(s device.Stream, out, inp, rows, factor, add tensor.Mem, n, each, c int) {
	k.run(s, CombineRowsAdd, Dims{N: n, C: c, K: each}, out, inp, rows, factor, add)
}

func (k *Calls) CombineGradient(s device.Stream, dfactor, dout, inp, rows tensor.Mem, n, each, c int) {
	k.run(s, CombineGradient, Dims{N: n, C: c, K: each}, dfactor, dout, inp, rows)
}

func (k *Calls) SumSquares(s device.Stream, out, x tensor.Mem, n int) {
	k.run(s, SumSquares, Dims{N: n}, out, x)
}

func (k *Calls) AdamW(s device.Stream, w, master, m, v, g tensor.Mem, n int, a AdamW) {
	k.pending.AdamW = a
	k.run(s, AdamWUpdate, Dims{N: n}, w, master, m, v, g)
}

func (k *Calls) Mask(s device.Stream, x, mask tensor.Mem, n int) {
	k.run(s, Mask, Dims{N: n}, x, mask)
}

func (k *Calls) MagnitudeHistogram(s device.Stream, hist, x, mask tensor.Mem, n int, prefix uint32, fixed int) {
	k.pending.Prefix, k.pending.Fixed = prefix, fixed
	k.run(s, MagnitudeHistogram, Dims{N: n}, hist, x, mask)
}
