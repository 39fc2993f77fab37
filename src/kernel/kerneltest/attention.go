package kerneltest

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"

	"dynmo/src/device"
	"dynmo/src/kernel"
)

// attention returns both calls where all heads have keys of their own.
func (of maker) attention(lengths []int, longest, c, nh int) []example {
	return of.grouped(lengths, longest, c, nh, nh)
}

// grouped returns both calls on sequences of these lengths, none more than
// longest; backward is given the out and lse of the reference, rounded.
func (of maker) grouped(lengths []int, longest, c, nh, kv int) []example {
	r, b, offsets := of.draw(givenSeed), len(lengths), []int32{0}
	for i, t := range lengths {
		offsets = append(offsets, offsets[i]+int32(t))
	}
	n := int(offsets[b])
	dims := kernel.Dims{B: b, Longest: longest, N: n, C: c, NH: nh, KV: kv}
	forward := kernel.Call{Op: kernel.AttentionForward, Dims: dims}
	backward := kernel.Call{Op: kernel.AttentionBackward, Dims: dims}
	given, note := map[string]any{"offsets": offsets, "qkv": r.normal(n * widthOf(kernel.Dims{C: c, NH: nh, KV: kv}))}, fmt.Sprintf(",t=%v", lengths)
	first := of.example(forward, note, given, of.bounded(attentionForwardBounds))
	given["out"], given["lse"] = r.rounded(first.operands[0].want), single(first.operands[1].want)
	return []example{first, of.example(backward, note, given, func(c kernel.Call, x values) (values, values) {
		out, lse := first.operands[0].want, first.operands[1].want
		_, _, bound := attentionBounds(c.Dims, x["offsets"], x["dout"], x["qkv"], out, lse, causal)
		return reference(c, x), values{"dqkv": bound}
	})}
}

// RunAttention is the part of Run for attention with head sizes 64 and 128, which has kernels of
// its own on some GPUs. Sequences have up to four tiles of 128. Where all sequences are equally
// long, the call does not announce a longer one: such kernels then deal out work in another way.
func RunAttention(t *testing.T, k kernel.Backend, dev device.Device, tol float64) {
	of := maker{k.DType(), k.Products()}
	for _, s := range []struct {
		hs, nh, kv int
		lengths    []int
	}{{64, 2, 2, []int{0, 1, 64, 150, 33, 0}}, {128, 2, 2, []int{130, 127}}, {64, 2, 1, []int{400, 0, 130}}, {128, 1, 1, []int{390}}, {128, 3, 1, []int{7, 128}}, {64, 3, 3, []int{140, 140, 140, 140}}} {
		longest := slices.Max(s.lengths)
		if slices.Min(s.lengths) < longest {
			longest += 20
		}
		for _, x := range of.grouped(s.lengths, longest, s.nh*s.hs, s.nh, s.kv) {
			t.Run(fmt.Sprintf("%s,heads=%d/%d", x.String(), s.nh, s.kv), func(t *testing.T) { agree(t, x, k, dev, tol) })
		}
	}
	t.Run("Sequences", func(t *testing.T) { sequences(t, k, dev) })
	t.Run("SharedKeys", func(t *testing.T) { sharedKeys(t, k, dev) })
}

// sequences asserts that every sequence gets the bits that it gets alone, whatever
// sequences lie before and behind it and whatever longest is.
func sequences(t *testing.T, k kernel.Backend, dev device.Device) {
	const c, nh = 128, 2
	lengths, of := []int{70, 0, 1, 130, 33}, maker{k.DType(), k.Products()}
	for _, packed := range append(of.attention(lengths, 140, c, nh), of.grouped(lengths, 140, c, nh, 1)...) {
		whole, first := results(t, k, dev, packed), 0
		for _, length := range lengths {
			x := packed
			x.B, x.Longest, x.N, x.operands = 1, length, length, slices.Clone(packed.operands)
			var want [][]byte
			for i := range x.operands {
				p, width := &x.operands[i], x.Op.Of().Operands[i].Count(&kernel.Dims{N: 1, C: c, NH: nh, KV: packed.KV})
				if data, ok := p.data.([]float64); ok {
					p.data = data[first*width:][:length*width]
					size := width * int(p.kind.Type(k.DType()).Size())
					want = append(want, whole[i][first*size:][:length*size])
				} else {
					p.data = []int32{0, int32(length)}
					want = append(want, p.encode(k.DType()))
				}
			}
			if got := results(t, k, dev, x); !slices.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("%s: a sequence of %d tokens has other bits alone", x.Op, length)
			}
			first += length
		}
	}
}

// results makes a call and returns its operands.
func results(t *testing.T, k kernel.Backend, dev device.Device, x example) [][]byte {
	a := newArena(t, dev, x, k.DType(), 0)
	defer a.free()
	x.run(k, a.stream, a.mem)
	return a.read(t)
}

func attentionForwardBounds(d kernel.Dims, x, want values) values {
	out, lse, _ := attentionBounds(d, x["offsets"], make([]float64, d.N*d.C), x["qkv"], want["out"], want["lse"], causal)
	return values{"out": out, "lse": lse}
}

// causal is whether query i sees key j of its sequence.
func causal(_, _, i, j int) bool { return j <= i }

// attentionBounds returns the bounds of all heads of all sequences, whose queries see some
// keys.
func attentionBounds(d kernel.Dims, offsets, dout, qkv, y, l []float64, sees func(sequence, head, i, j int) bool) (out, lse, dqkv []float64) {
	out, lse, dqkv = make([]float64, len(y)), make([]float64, len(l)), make([]float64, len(qkv))
	for sequence := range d.B {
		first, t := int(offsets[sequence]), int(offsets[sequence+1]-offsets[sequence])
		row, wide := first*d.C, first*widthOf(d)
		for head := range d.NH {
			sums := first*d.NH + head*t
			headBounds(out[row:], lse[sums:], dqkv[wide:], dout[row:], qkv[wide:], y[row:], l[sums:], head, t, d,
				func(i, j int) bool { return sees(sequence, head, i, j) })
		}
	}
	return out, lse, dqkv
}

// widthOf returns the channels of queries, keys and values; without KV all heads have keys.
func widthOf(d kernel.Dims) int {
	if d.KV == 0 {
		return 3 * d.C
	}
	return d.C + 2*d.KV*(d.C/d.NH)
}

// headBounds fills in the bounds of one head of a sequence. S_ij = |q_i|·|k_j|/sqrt(hs) are
// the terms of a score that i sees. A probability p_ij has a relative error of at most
// e_ij = 1 + S_ij + max_j S_ij + |lse_i| units, and
//
//	out_i: Σ_j e_ij·p_ij·|v_j|            lse_i: 1 + max_j S_ij + |lse_i|
//	ds_ij: e_ij·p_ij·(|dout_i|·|v_j| + |dout_i|·|out_i|)/sqrt(hs)
//	dq_i:  Σ_j ds_ij·|k_j|                dk_j:  Σ_i ds_ij·|q_i|
//	dv_j:  Σ_i e_ij·p_ij·|dout_i|
func headBounds(out, lse, dqkv []float64, dy, qkv, y, l []float64, head, t int, d kernel.Dims, sees func(i, j int) bool) {
	hs, width := d.C/d.NH, widthOf(d)
	keys := (width - d.C) / 2 // channels
	group := head * keys / d.C
	scale := 1 / math.Sqrt(float64(hs))
	q := func(i int) int { return i*width + head*hs } // where row i of each begins
	k := func(i int) int { return i*width + d.C + group*hs }
	v := func(i int) int { return k(i) + keys }
	o := func(i int) int { return i*d.C + head*hs }

	terms, seen := make([]float64, t), make([]int, 0, t) // S_ij, and the j that i sees
	for i := range t {
		largest, seen := 0.0, seen[:0]
		for j := range i + 1 {
			if !sees(i, j) {
				continue
			}
			seen = append(seen, j)
			terms[j] = scale * absDot(qkv[q(i):], qkv[k(j):], hs)
			largest = max(largest, terms[j])
		}
		if len(seen) == 0 {
			continue
		}
		li := l[i]
		lse[i] = 1 + largest + math.Abs(li)
		mean := absDot(dy[o(i):], y[o(i):], hs)
		for _, j := range seen {
			p := math.Exp(scale*dot(qkv[q(i):], qkv[k(j):], hs) - li)
			p *= 1 + terms[j] + largest + math.Abs(li)
			ds := p * scale * (absDot(dy[o(i):], qkv[v(j):], hs) + mean)
			for x := range hs {
				out[o(i)+x] += p * math.Abs(qkv[v(j)+x])
				dqkv[q(i)+x] += ds * math.Abs(qkv[k(j)+x])
				dqkv[k(j)+x] += ds * math.Abs(qkv[q(i)+x])
				dqkv[v(j)+x] += p * math.Abs(dy[o(i)+x])
			}
		}
	}
}

// dot returns Σ x·y over n elements.
func dot(x, y []float64, n int) (sum float64) {
	for i := range n {
		sum += x[i] * y[i]
	}
	return sum
}

// absDot returns Σ |x|·|y| over n elements.
func absDot(x, y []float64, n int) (sum float64) {
	for i := range n {
		sum += math.Abs(x[i] * y[i])
	}
	return sum
}

// sharedKeys asserts that heads may share keys and values. out, lse and the gradient of queries
// must have the bits of the same heads with a copy of keys and values each.
func sharedKeys(t *testing.T, k kernel.Backend, dev device.Device) {
	const nh, kv = 4, 2
	of, lengths := maker{k.DType(), k.Products()}, []int{70, 0, 1, 130, 33}
	for _, hs := range []int{5, 32, 64} {
		c := nh * hs
		shared, apart := of.grouped(lengths, 140, c, nh, kv), of.attention(lengths, 140, c, nh)
		for i := range shared {
			for p := range shared[i].operands {
				apart[i].operands[p].data = shared[i].operands[p].data
			}
			for p, at := range map[string]int{"qkv": 2, "dqkv": 0} {
				if operand := &apart[i].operands[at]; operand.name == p {
					operand.data = copied(operand.data.([]float64), c, kv*hs, hs)
				}
			}
			got, want := results(t, k, dev, shared[i]), results(t, k, dev, apart[i])
			outs := 2 // out and lse
			if shared[i].Op == kernel.AttentionBackward {
				outs = 1
				size := int(k.DType().Size())
				got[0], want[0] = leading(got[0], (c+2*kv*hs)*size, c*size), leading(want[0], 3*c*size, c*size)
			}
			for p := range outs {
				if !bytes.Equal(got[p], want[p]) {
					t.Errorf("%s of head size %d: %s has other bits than with copies of keys", shared[i].Op, hs, shared[i].operands[p].name)
				}
			}
		}
	}
}

// copied returns rows of c queries, c keys and c values. Keys and values of qkv have `keys`
// channels each; every head of hs channels gets a copy.
func copied(qkv []float64, c, keys, hs int) (all []float64) {
	share := c / keys
	for ; len(qkv) > 0; qkv = qkv[c+2*keys:] {
		all = append(all, qkv[:c]...)
		for part := c; part < c+2*keys; part += keys {
			for head := range c / hs {
				all = append(all, qkv[part+head/share*hs:][:hs]...)
			}
		}
	}
	return all
}

// leading returns the first bytes of every row.
func leading(rows []byte, width, first int) (all []byte) {
	for ; len(rows) > 0; rows = rows[width:] {
		all = append(all, rows[:first]...)
	}
	return all
}
