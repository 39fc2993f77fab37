package model

import (
	"strings"
	"testing"

	"dynmo/src/tensor"
)

// TestCheckStructure: masks and CSR structure that a file made up are found, before a
// kernel goes by them.
func TestCheckStructure(t *testing.T) {
	for _, c := range []struct {
		format Format
		damage func(p *Param)
		want   string
	}{
		{Masked, func(*Param) {}, ""},
		{CSR, func(*Param) {}, ""},
		{Masked, func(p *Param) { tensor.Of[uint64](p.Mask)[0] ^= 1 }, "mask of "},
		{CSR, func(p *Param) { tensor.Of[int32](p.RowPtr)[0] = 1 }, "rows from entry 1"},
		{CSR, func(p *Param) { tensor.Of[int32](p.RowPtr)[p.Rows]++ }, "rows from entry 0"},
		{CSR, func(p *Param) { tensor.Of[int32](p.RowPtr)[1] = -1 }, "row 0 has entries 0 to -1"},
		{CSR, func(p *Param) { tensor.Of[int32](p.RowPtr)[1] = 1 << 30 }, "row 0 has entries 0 to 1073741824"},
		{CSR, func(p *Param) { tensor.Of[int32](p.ColIdx)[0] = -1 }, "row 0 has column -1"},
		{CSR, func(p *Param) { tensor.Of[int32](p.ColIdx)[p.NNZ-1] = int32(p.Cols) }, "of "},
		{CSR, func(p *Param) { tensor.Of[int32](p.ColIdx)[1] = tensor.Of[int32](p.ColIdx)[0] }, "row 0 has column "},
	} {
		ch := newChain(t, small, tensor.F32)
		thin(t, ch.s, c.format)
		l := ch.s.Layers[1]
		c.damage(l.params[0])
		switch err := l.CheckStructure(); {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v", c.format, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), l.params[0].Name+": ") || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: error %v, want %q", c.format, err, c.want)
		}
		ch.s.Free()
	}
}
