package kernel

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Operands are the memory of a call, in the order of its operation's.
type Operands [7]tensor.Mem

// Call is one call of a backend: its operation, dimensions and operands, and the
// numbers that its method takes besides.
type Call struct {
	Op Op
	Dims
	Mem    Operands
	First  int     // column of the softmax calls
	Scale  float64 // of the gradient of logits
	AdamW  AdamW
	Prefix uint32 // of MagnitudeHistogram, as Fixed
	Fixed  int
}

// Flops returns the floating-point operations of the call.
func (c *Call) Flops() float64 {
	op := c.Op.Of()
	return float64(op.Flops) * float64(op.Work(c.Dims))
}

// Calls is the part of Backend that all backends have alike: the typed calls. Each
// makes a Call, verifies it and hands it to Do.
type Calls struct {
	Elements tensor.DType // of weights and activations
	Space    tensor.Space // where the backend computes
	Do       func(device.Stream, Call)
	Fused    bool // Do takes calls of two operations in one; else they are composed
}

// DType returns the element type of weights and activations.
func (k *Calls) DType() tensor.DType { return k.Elements }

// Close does nothing.
func (*Calls) Close() error { return nil }

// Verify panics if the dimensions or numbers of a call are impossible, or if an
// operand's length is not its shape's or its space is not Space. Nothing is read
// from memory.
func (k *Calls) Verify(c *Call) {
	op := c.Op.Of()
	if problem := c.impossible(); problem != "" {
		panic("kernel: " + op.Name + ": " + problem)
	}
	for i := range op.Operands {
		p := &op.Operands[i]
		if m := &c.Mem[i]; m.Ptr != nil || !p.Optional {
			k.operand(op, p, m, c.Dims)
		}
	}
}

// operand verifies m. An empty operand may be absent, whatever its space.
func (k *Calls) operand(op *Operation, p *Operand, m *tensor.Mem, d Dims) {
	bytes := int64(p.Count(d)) * p.Kind.Type(k.Elements).Size()
	switch {
	case p.Kind == Master && k.Elements.Wide() == k.Elements:
		bytes = 0
	case p.Kind < Table:
	case bytes == 0 || m.Bytes == 0 || m.Bytes%bytes != 0:
		bytes = -1 // never m's
	default:
		bytes = m.Bytes
	}
	if m.Bytes != bytes {
		panic("kernel: " + op.Name + ": " + p.Name + " has the wrong length")
	}
	if bytes != 0 && m.Space != k.Space {
		panic("kernel: " + op.Name + ": " + p.Name + " is in the wrong space")
	}
}

// impossible says what is wrong with the dimensions and numbers of a call, ""
// if nothing.
func (c *Call) impossible() string {
	d := &c.Dims
	switch {
	case d.N|d.C|d.O|d.NNZ|d.V|d.B|d.Longest|d.NH|c.First < 0:
		return "a dimension is negative"
	case c.Op == AttentionForward || c.Op == AttentionBackward:
		if d.NH < 1 || d.C%d.NH != 0 {
			return "channels are not a multiple of heads"
		}
		if d.N > d.B*d.Longest {
			return "there are more tokens than sequences of the longest length hold"
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
	}
	return ""
}

// Run verifies a call and does it.
func (k *Calls) Run(s device.Stream, c Call) { k.run(s, &c) }

func (k *Calls) run(s device.Stream, c *Call) {
	k.Verify(c)
	if k.Fused || !k.compose(s, c) {
		k.Do(s, *c)
	}
}

func (k *Calls) EmbeddingForward(s device.Stream, out, tokens, positions, wte, wpe tensor.Mem, n, c int) {
	k.run(s, &Call{Op: EmbeddingForward, Dims: Dims{N: n, C: c}, Mem: Operands{out, tokens, positions, wte, wpe}})
}

func (k *Calls) EmbeddingBackward(s device.Stream, dwte, dwpe, dout, tokens, positions tensor.Mem, n, c int) {
	k.run(s, &Call{Op: EmbeddingBackward, Dims: Dims{N: n, C: c}, Mem: Operands{dwte, dwpe, dout, tokens, positions}})
}

func (k *Calls) LayerNormForward(s device.Stream, out, mean, rstd, inp, weight, bias tensor.Mem, n, c int) {
	k.run(s, &Call{Op: LayerNormForward, Dims: Dims{N: n, C: c}, Mem: Operands{out, mean, rstd, inp, weight, bias}})
}

func (k *Calls) LayerNormBackwardInput(s device.Stream, dinp, dout, inp, mean, rstd, weight tensor.Mem, n, c int) {
	k.run(s, &Call{Op: LayerNormBackwardInput, Dims: Dims{N: n, C: c}, Mem: Operands{dinp, dout, inp, mean, rstd, weight}})
}

func (k *Calls) LayerNormBackwardInputTo(s device.Stream, dinp, add, dout, inp, mean, rstd, weight tensor.Mem, n, c int) {
	k.run(s, &Call{Op: LayerNormBackwardInputTo, Dims: Dims{N: n, C: c}, Mem: Operands{dinp, add, dout, inp, mean, rstd, weight}})
}

func (k *Calls) LayerNormBackwardWeight(s device.Stream, dweight, dbias, dout, inp, mean, rstd tensor.Mem, n, c int) {
	k.run(s, &Call{Op: LayerNormBackwardWeight, Dims: Dims{N: n, C: c}, Mem: Operands{dweight, dbias, dout, inp, mean, rstd}})
}

func (k *Calls) MatmulForward(s device.Stream, out, inp, weight, bias tensor.Mem, n, c, o int) {
	k.run(s, &Call{Op: MatmulForward, Dims: Dims{N: n, C: c, O: o}, Mem: Operands{out, inp, weight, bias}})
}

func (k *Calls) MatmulForwardAdd(s device.Stream, out, inp, weight, bias, add tensor.Mem, n, c, o int) {
	k.run(s, &Call{Op: MatmulForwardAdd, Dims: Dims{N: n, C: c, O: o}, Mem: Operands{out, inp, weight, bias, add}})
}

func (k *Calls) MatmulForwardGELU(s device.Stream, out, pre, inp, weight, bias tensor.Mem, n, c, o int) {
	k.run(s, &Call{Op: MatmulForwardGELU, Dims: Dims{N: n, C: c, O: o}, Mem: Operands{out, pre, inp, weight, bias}})
}

func (k *Calls) MatmulBackwardInput(s device.Stream, dinp, dout, weight tensor.Mem, n, c, o int) {
	k.run(s, &Call{Op: MatmulBackwardInput, Dims: Dims{N: n, C: c, O: o}, Mem: Operands{dinp, dout, weight}})
}

func (k *Calls) MatmulBackwardGELU(s device.Stream, dpre, dout, weight, pre tensor.Mem, n, c, o int) {
	k.run(s, &Call{Op: MatmulBackwardGELU, Dims: Dims{N: n, C: c, O: o}, Mem: Operands{dpre, dout, weight, pre}})
}

func (k *Calls) MatmulBackwardWeight(s device.Stream, dweight, dbias, dout, inp tensor.Mem, n, c, o int) {
	k.run(s, &Call{Op: MatmulBackwardWeight, Dims: Dims{N: n, C: c, O: o}, Mem: Operands{dweight, dbias, dout, inp}})
}

func (k *Calls) SpMMForward(s device.Stream, out, inp tensor.Mem, w CSR, bias tensor.Mem, n int) {
	k.run(s, &Call{Op: SpMMForward, Dims: w.dims(n), Mem: Operands{out, inp, w.RowPtr, w.ColIdx, w.Values, bias}})
}

func (k *Calls) SpMMBackwardInput(s device.Stream, dinp, dout tensor.Mem, w CSR, n int) {
	k.run(s, &Call{Op: SpMMBackwardInput, Dims: w.dims(n), Mem: Operands{dinp, dout, w.RowPtr, w.ColIdx, w.Values}})
}

func (k *Calls) SDDMM(s device.Stream, dvalues, dbias, dout, inp tensor.Mem, w CSR, n int) {
	k.run(s, &Call{Op: SDDMM, Dims: w.dims(n), Mem: Operands{dvalues, dbias, dout, inp, w.RowPtr, w.ColIdx}})
}

func (w *CSR) dims(n int) Dims { return Dims{N: n, C: w.Cols, O: w.Rows, NNZ: w.NNZ} }

func (k *Calls) AttentionForward(s device.Stream, out, lse, qkv, offsets tensor.Mem, b, longest, n, c, nh int) {
	k.run(s, &Call{Op: AttentionForward, Dims: Dims{B: b, Longest: longest, N: n, C: c, NH: nh}, Mem: Operands{out, lse, qkv, offsets}})
}

func (k *Calls) AttentionBackward(s device.Stream, dqkv, dout, qkv, out, lse, offsets tensor.Mem, b, longest, n, c, nh int) {
	k.run(s, &Call{Op: AttentionBackward, Dims: Dims{B: b, Longest: longest, N: n, C: c, NH: nh},
		Mem: Operands{dqkv, dout, qkv, out, lse, offsets}})
}

func (k *Calls) GELUForward(s device.Stream, out, inp tensor.Mem, n int) {
	k.run(s, &Call{Op: GELUForward, Dims: Dims{N: n}, Mem: Operands{out, inp}})
}

func (k *Calls) GELUBackward(s device.Stream, dinp, inp, dout tensor.Mem, n int) {
	k.run(s, &Call{Op: GELUBackward, Dims: Dims{N: n}, Mem: Operands{dinp, inp, dout}})
}

func (k *Calls) Add(s device.Stream, out, a, b tensor.Mem, n int) {
	k.run(s, &Call{Op: Add, Dims: Dims{N: n}, Mem: Operands{out, a, b}})
}

func (k *Calls) Accumulate(s device.Stream, out, a, b tensor.Mem, n int) {
	k.run(s, &Call{Op: Accumulate, Dims: Dims{N: n}, Mem: Operands{out, a, b}})
}

func (k *Calls) SoftmaxMerge(s device.Stream, out, before, logits, targets tensor.Mem, n, v, first int) {
	k.run(s, &Call{Op: SoftmaxMerge, Dims: Dims{N: n, V: v}, First: first, Mem: Operands{out, before, logits, targets}})
}

func (k *Calls) SoftmaxGradient(s device.Stream, logits, stats, targets tensor.Mem, scale float64, n, v, first int) {
	k.run(s, &Call{Op: SoftmaxGradient, Dims: Dims{N: n, V: v}, First: first, Scale: scale, Mem: Operands{logits, stats, targets}})
}

func (k *Calls) CrossEntropy(s device.Stream, loss, out, before, logits, targets tensor.Mem, scale float64, n, v, first int) {
	k.run(s, &Call{Op: CrossEntropy, Dims: Dims{N: n, V: v}, First: first, Scale: scale, Mem: Operands{loss, out, before, logits, targets}})
}

func (k *Calls) SumSquares(s device.Stream, out, x tensor.Mem, n int) {
	k.run(s, &Call{Op: SumSquares, Dims: Dims{N: n}, Mem: Operands{out, x}})
}

func (k *Calls) AdamW(s device.Stream, w, master, m, v, g tensor.Mem, n int, a AdamW) {
	k.run(s, &Call{Op: AdamWUpdate, Dims: Dims{N: n}, AdamW: a, Mem: Operands{w, master, m, v, g}})
}

func (k *Calls) Mask(s device.Stream, x, mask tensor.Mem, n int) {
	k.run(s, &Call{Op: Mask, Dims: Dims{N: n}, Mem: Operands{x, mask}})
}

func (k *Calls) MagnitudeHistogram(s device.Stream, hist, x, mask tensor.Mem, n int, prefix uint32, fixed int) {
	k.run(s, &Call{Op: MagnitudeHistogram, Dims: Dims{N: n}, Prefix: prefix, Fixed: fixed, Mem: Operands{hist, x, mask}})
}
