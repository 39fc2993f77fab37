package kernel

import "dynmo/src/tensor"

// Check looks at the operands of a call before a backend touches them. It has
// one method for each call of Backend, with the call's operands and shape, and
// every backend begins the call with it. A method panics if a shape is
// impossible, or if an operand's length is not its shape's or its space is not
// Space; the trace points at the operand's line. Nothing is read from memory.
type Check struct {
	DType tensor.DType // of weights and activations
	Space tensor.Space // where the backend computes
}

// EmbeddingForward checks the operands of that call. Of the tables it knows
// only that they hold whole rows.
func (k Check) EmbeddingForward(out, tokens, positions, wte, wpe tensor.Mem, n, c int) {
	k.embedding(k.DType, out, tokens, positions, wte, wpe, n, c)
}

// EmbeddingBackward checks the operands of that call.
func (k Check) EmbeddingBackward(dwte, dwpe, dout, tokens, positions tensor.Mem, n, c int) {
	k.embedding(k.DType.Wide(), dout, tokens, positions, dwte, dwpe, n, c)
}

// embedding checks tables of elements of type d.
func (k Check) embedding(d tensor.DType, x, tokens, positions, wte, wpe tensor.Mem, n, c int) {
	k.floats(x, n, c)
	k.want(tokens, tensor.I32, n)
	k.want(positions, tensor.I32, n)
	k.rows(wte, d, c)
	k.rows(wpe, d, c)
}

// LayerNormForward checks the operands of that call.
func (k Check) LayerNormForward(out, mean, rstd, inp, weight, bias tensor.Mem, n, c int) {
	k.floats(out, n, c)
	k.wides(mean, n)
	k.wides(rstd, n)
	k.floats(inp, n, c)
	k.floats(weight, c)
	k.floats(bias, c)
}

// LayerNormBackwardInput checks the operands of that call.
func (k Check) LayerNormBackwardInput(dinp, dout, inp, mean, rstd, weight tensor.Mem, n, c int) {
	k.floats(dinp, n, c)
	k.floats(dout, n, c)
	k.floats(inp, n, c)
	k.wides(mean, n)
	k.wides(rstd, n)
	k.floats(weight, c)
}

// LayerNormBackwardInputTo checks the operands of that call.
func (k Check) LayerNormBackwardInputTo(dinp, add, dout, inp, mean, rstd, weight tensor.Mem, n, c int) {
	k.LayerNormBackwardInput(dinp, dout, inp, mean, rstd, weight, n, c)
	k.floats(add, n, c)
}

// LayerNormBackwardWeight checks the operands of that call.
func (k Check) LayerNormBackwardWeight(dweight, dbias, dout, inp, mean, rstd tensor.Mem, n, c int) {
	k.wides(dweight, c)
	k.wides(dbias, c)
	k.floats(dout, n, c)
	k.floats(inp, n, c)
	k.wides(mean, n)
	k.wides(rstd, n)
}

// MatmulForward checks the operands of that call.
func (k Check) MatmulForward(out, inp, weight, bias tensor.Mem, n, c, o int) {
	k.floats(out, n, o)
	k.floats(inp, n, c)
	k.floats(weight, o, c)
	k.optional(bias, k.DType, o)
}

// MatmulForwardAdd checks the operands of that call.
func (k Check) MatmulForwardAdd(out, inp, weight, bias, add tensor.Mem, n, c, o int) {
	k.MatmulForward(out, inp, weight, bias, n, c, o)
	k.floats(add, n, o)
}

// MatmulForwardGELU checks the operands of that call.
func (k Check) MatmulForwardGELU(out, pre, inp, weight, bias tensor.Mem, n, c, o int) {
	k.MatmulForward(out, inp, weight, bias, n, c, o)
	k.floats(pre, n, o)
}

// MatmulBackwardGELU checks the operands of that call.
func (k Check) MatmulBackwardGELU(dpre, dout, weight, pre tensor.Mem, n, c, o int) {
	k.MatmulBackwardInput(dpre, dout, weight, n, c, o)
	k.floats(pre, n, c)
}

// MatmulBackwardInput checks the operands of that call.
func (k Check) MatmulBackwardInput(dinp, dout, weight tensor.Mem, n, c, o int) {
	k.floats(dinp, n, c)
	k.floats(dout, n, o)
	k.floats(weight, o, c)
}

// MatmulBackwardWeight checks the operands of that call.
func (k Check) MatmulBackwardWeight(dweight, dbias, dout, inp tensor.Mem, n, c, o int) {
	k.wides(dweight, o, c)
	k.optional(dbias, k.DType.Wide(), o)
	k.floats(dout, n, o)
	k.floats(inp, n, c)
}

// SpMMForward checks the operands of that call.
func (k Check) SpMMForward(out, inp tensor.Mem, w CSR, bias tensor.Mem, n int) {
	k.floats(out, n, w.Rows)
	k.floats(inp, n, w.Cols)
	k.pattern(w)
	k.floats(w.Values, w.NNZ)
	k.optional(bias, k.DType, w.Rows)
}

// SpMMBackwardInput checks the operands of that call.
func (k Check) SpMMBackwardInput(dinp, dout tensor.Mem, w CSR, n int) {
	k.floats(dinp, n, w.Cols)
	k.floats(dout, n, w.Rows)
	k.pattern(w)
	k.floats(w.Values, w.NNZ)
}

// SDDMM checks the operands of that call.
func (k Check) SDDMM(dvalues, dbias, dout, inp tensor.Mem, w CSR, n int) {
	k.wides(dvalues, w.NNZ)
	k.optional(dbias, k.DType.Wide(), w.Rows)
	k.floats(dout, n, w.Rows)
	k.floats(inp, n, w.Cols)
	k.pattern(w)
}

// pattern checks where the entries of w are, not their values.
func (k Check) pattern(w CSR) {
	k.want(w.RowPtr, tensor.I32, w.Rows+1)
	k.want(w.ColIdx, tensor.I32, w.NNZ)
}

// AttentionForward checks the operands of that call.
func (k Check) AttentionForward(out, lse, qkv, offsets tensor.Mem, b, longest, n, c, nh int) {
	k.attention(offsets, lse, b, longest, n, c, nh)
	k.floats(out, n, c)
	k.floats(qkv, n, 3, c)
}

// AttentionBackward checks the operands of that call.
func (k Check) AttentionBackward(dqkv, dout, qkv, out, lse, offsets tensor.Mem, b, longest, n, c, nh int) {
	k.attention(offsets, lse, b, longest, n, c, nh)
	k.floats(dqkv, n, 3, c)
	k.floats(dout, n, c)
	k.floats(qkv, n, 3, c)
	k.floats(out, n, c)
}

// attention checks the shape of that call and the operands that follow it.
func (k Check) attention(offsets, lse tensor.Mem, b, longest, n, c, nh int) {
	if nh < 1 || c%nh != 0 {
		panic("kernel: channels are not a multiple of heads")
	}
	if n > b*longest {
		panic("kernel: more tokens than the longest sequences hold")
	}
	k.want(offsets, tensor.I32, b+1)
	k.wides(lse, nh, n)
}

// GELUForward checks the operands of that call.
func (k Check) GELUForward(out, inp tensor.Mem, n int) {
	k.floats(out, n)
	k.floats(inp, n)
}

// GELUBackward checks the operands of that call.
func (k Check) GELUBackward(dinp, inp, dout tensor.Mem, n int) {
	k.floats(dinp, n)
	k.floats(inp, n)
	k.floats(dout, n)
}

// Add checks the operands of that call.
func (k Check) Add(out, a, b tensor.Mem, n int) {
	k.floats(out, n)
	k.floats(a, n)
	k.floats(b, n)
}

// Accumulate checks the operands of that call.
func (k Check) Accumulate(out, a, b tensor.Mem, n int) {
	k.wides(out, n)
	k.wides(a, n)
	k.wides(b, n)
}

// SoftmaxMerge checks the operands of that call.
func (k Check) SoftmaxMerge(out, before, logits, targets tensor.Mem, n, v, first int) {
	k.want(out, tensor.F64, 3, n)
	k.optional(before, tensor.F64, 3, n)
	k.columns(logits, targets, n, v, first)
}

// SoftmaxGradient checks the operands of that call.
func (k Check) SoftmaxGradient(logits, stats, targets tensor.Mem, n, v, first int) {
	k.want(stats, tensor.F64, 3, n)
	k.columns(logits, targets, n, v, first)
}

// CrossEntropy checks the operands of that call.
func (k Check) CrossEntropy(loss, out, before, logits, targets tensor.Mem, n, v, first int) {
	k.want(loss, tensor.F64, 1)
	k.SoftmaxMerge(out, before, logits, targets, n, v, first)
}

// columns checks logits (n, v) from column first of their rows, and targets.
func (k Check) columns(logits, targets tensor.Mem, n, v, first int) {
	if first < 0 {
		panic("kernel: negative column")
	}
	k.floats(logits, n, v)
	k.want(targets, tensor.I32, n)
}

// SumSquares checks the operands of that call.
func (k Check) SumSquares(out, x tensor.Mem, n int) {
	k.want(out, tensor.F64, 1)
	k.wides(x, n)
}

// AdamW checks the operands of that call.
func (k Check) AdamW(w, master, m, v, g tensor.Mem, n int, a AdamW) {
	if a.Step < 1 {
		panic("kernel: AdamW counts steps from 1")
	}
	if a.Decayed < 0 || a.Decayed > n {
		panic("kernel: AdamW decays elements that are not there")
	}
	k.floats(w, n)
	if k.DType.Wide() != k.DType {
		k.wides(master, n)
	} else if !master.IsZero() {
		panic("kernel: AdamW of wide weights with a master")
	}
	k.wides(m, n)
	k.wides(v, n)
	k.wides(g, n)
}

// Mask checks the operands of that call.
func (k Check) Mask(x, mask tensor.Mem, n int) {
	k.wides(x, n)
	k.want(mask, tensor.U64, (n+63)/64)
}

// MagnitudeHistogram checks the operands of that call.
func (k Check) MagnitudeHistogram(hist, x, mask tensor.Mem, n int, prefix uint32, fixed int) {
	if fixed < 0 || fixed > 24 || fixed%8 != 0 {
		panic("kernel: fixed bits are not 0, 8, 16 or 24")
	}
	if prefix>>fixed != 0 {
		panic("kernel: prefix has more bits than are fixed")
	}
	k.want(hist, tensor.I64, 256)
	k.wides(x, n)
	k.optional(mask, tensor.U64, (n+63)/64)
}

// floats checks an operand of the backend's element type.
func (k Check) floats(m tensor.Mem, shape ...int) { k.want(m, k.DType, shape...) }

// wides checks an operand of wide elements.
func (k Check) wides(m tensor.Mem, shape ...int) { k.want(m, k.DType.Wide(), shape...) }

// optional checks an operand that may be absent.
func (k Check) optional(m tensor.Mem, d tensor.DType, shape ...int) {
	if !m.IsZero() {
		k.want(m, d, shape...)
	}
}

// want panics unless m holds exactly shape elements of type d in k.Space. An
// empty operand may be absent, whatever its space.
func (k Check) want(m tensor.Mem, d tensor.DType, shape ...int) {
	bytes := d.Size()
	for _, length := range shape {
		if length < 0 {
			panic("kernel: negative dimension")
		}
		bytes *= int64(length)
	}
	if m.Bytes != bytes {
		panic("kernel: operand has the wrong length")
	}
	k.inSpace(m)
}

// rows panics unless m holds at least one row of c elements of type d, and no part of one.
func (k Check) rows(m tensor.Mem, d tensor.DType, c int) {
	row := int64(c) * d.Size()
	if row <= 0 || m.Bytes%row != 0 || m.Bytes < row {
		panic("kernel: operand has the wrong length")
	}
	k.inSpace(m)
}

func (k Check) inSpace(m tensor.Mem) {
	if m.Bytes != 0 && m.Space != k.Space {
		panic("kernel: operand is in the wrong space")
	}
}
