//go:build blas && cgo

package cpu

import (
	"testing"

	"dynmo/src/random"
	"dynmo/src/tensor"
)

// llama makes the calls of LLaMA's blocks and of mixtures of experts. All heads share
// their keys, or pairs do where heads are even.
func (r result) llama(k *backend, b, t, c, nh int) {
	n, kv, hs, draw := b*t, max(1, nh/2*(1-nh%2)), c/nh, random.Keyed(12)
	width := c + 2*kv*hs
	qkv, dout, out, lse, dqkv := normal(1, n*width), normal(2, n*c), make([]float32, n*c), make([]float32, n*nh), make([]float32, n*width)
	k.AttentionForward(nil, mem(out), mem(lse), mem(qkv), even(b, t), b, t, n, c, nh, kv)
	r.add("grouped AttentionForward", out, lse)
	k.AttentionBackward(nil, mem(dqkv), mem(dout), mem(qkv), mem(out), mem(lse), even(b, t), b, t, n, c, nh, kv)
	r.add("grouped AttentionBackward", dqkv)
	positions, turning := make([]int32, n), hs/2*2
	for i := range positions {
		positions[i] = draw.Int32N(int32(t))
	}
	k.Rotary(nil, mem(qkv), mem(positions), mem(normal(3, t*max(turning, 1))), n, nh, width, turning, true)
	r.add("Rotary", qkv)

	inp, weight, rstd, dinp, dweight := normal(3, n*c), normal(4, c), make([]float32, n), normal(6, n*c), normal(7, c)
	k.NormForward(nil, mem(out), tensor.Mem{}, mem(rstd), mem(inp), mem(weight), tensor.Mem{}, n, c, 1e-5)
	r.add("NormForward without mean", out, rstd)
	k.NormBackwardInput(nil, mem(dinp), mem(dout), mem(inp), tensor.Mem{}, mem(rstd), mem(weight), n, c)
	r.add("NormBackwardInput without mean", dinp)
	k.NormBackwardWeight(nil, mem(dweight), tensor.Mem{}, mem(dout), mem(inp), tensor.Mem{}, mem(rstd), n, c)
	r.add("NormBackwardWeight without mean", dweight)

	gateup, dgateup := normal(8, n*2*c), make([]float32, n*2*c)
	k.SwiGLUForward(nil, mem(out), mem(gateup), n, c)
	r.add("SwiGLUForward", out)
	k.SwiGLUBackward(nil, mem(dgateup), mem(dout), mem(gateup), n, c)
	r.add("SwiGLUBackward", dgateup)

	const each = 3
	rows, dfactor := make([]int32, n*each), make([]float32, n*each)
	for i := range rows {
		rows[i] = draw.Int32N(int32(n+1)) - 1
	}
	k.CombineRows(nil, mem(out), mem(inp), mem(rows), mem(normal(9, n*each)), n, each, c)
	r.add("CombineRows", out)
	k.CombineGradient(nil, mem(dfactor), mem(dout), mem(inp), mem(rows), n, each, c)
	r.add("CombineGradient", dfactor)
}

// TestRowsOutsideTheirTable: positions and rows that index outside are refused, and
// absent rows are not.
func TestRowsOutsideTheirTable(t *testing.T) {
	k := open(t, "generic", 1)
	const n, c, table = 2, 4, 3
	x := func(n int) tensor.Mem { return tensor.From(make([]float32, n)) }
	for _, s := range []struct {
		index         []int32
		position, row bool // refused
	}{{[]int32{0, 2}, false, false}, {[]int32{-1, 2}, true, false}, {[]int32{0, 3}, true, true}} {
		for name, call := range map[string]struct {
			refused bool
			make    func()
		}{
			"Rotary":          {s.position, func() { k.Rotary(nil, x(n*c), mem(s.index), x(table*c), n, 1, c, c, false) }},
			"CombineRows":     {s.row, func() { k.CombineRows(nil, x(n*c), x(table*c), mem(s.index), x(n), n, 1, c) }},
			"CombineGradient": {s.row, func() { k.CombineGradient(nil, x(n), x(n*c), x(table*c), mem(s.index), n, 1, c) }},
		} {
			func() {
				defer func() {
					if refused := recover() != nil; refused != call.refused {
						t.Errorf("%s of rows %v of %d: refused %t, want %t", name, s.index, table, refused, call.refused)
					}
				}()
				call.make()
			}()
		}
	}
}
