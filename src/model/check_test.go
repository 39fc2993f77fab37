package model_test

import (
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/model/modeltest"
	"dynmo/src/tensor"
	"strings"
	"testing"
)

// TestCheckStructure: masks and CSR structure that a file made up are found, before a
// kernel goes by them.
func TestCheckStructure(t *testing.T) {
	for _, c := range []struct {
		format model.Format
		damage func(p *model.Param)
		want   string
	}{
		{model.Masked, func(*model.Param) {}, ""},
		{model.CSR, func(*model.Param) {}, ""},
		{model.Masked, func(p *model.Param) { tensor.Of[uint64](p.Mask)[0] ^= 1 }, "mask of "},
		{model.CSR, func(p *model.Param) { tensor.Of[int32](p.RowPtr)[0] = 1 }, "rows from entry 1"},
		{model.CSR, func(p *model.Param) { tensor.Of[int32](p.RowPtr)[p.Rows]++ }, "rows from entry 0"},
		{model.CSR, func(p *model.Param) { tensor.Of[int32](p.RowPtr)[1] = -1 }, "row 0 has entries 0 to -1"},
		{model.CSR, func(p *model.Param) { tensor.Of[int32](p.RowPtr)[1] = 1 << 30 }, "row 0 has entries 0 to 1073741824"},
		{model.CSR, func(p *model.Param) { tensor.Of[int32](p.ColIdx)[0] = -1 }, "row 0 has column -1"},
		{model.CSR, func(p *model.Param) { tensor.Of[int32](p.ColIdx)[p.NNZ-1] = int32(p.Cols) }, "of "},
		{model.CSR, func(p *model.Param) { tensor.Of[int32](p.ColIdx)[1] = tensor.Of[int32](p.ColIdx)[0] }, "row 0 has column "},
	} {
		ch := modeltest.New(t, modeltest.Small, tensor.F32)
		modeltest.Thin(t, ch.S, c.format)
		l := ch.S.Layers[1]
		c.damage(l.Params()[0])
		switch err := l.CheckStructure(); {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v", c.format, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), l.Params()[0].Name+": ") || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: error %v, want %q", c.format, err, c.want)
		}
		ch.S.Free()
	}
}

// TestCheckBlocks: entries that are no whole blocks are found.
func TestCheckBlocks(t *testing.T) {
	const side = kernel.Block
	for _, c := range []struct {
		name   string
		damage func(rows, columns []int32)
		want   string
	}{
		{"whole", func(rows, columns []int32) {}, ""},
		{"another column", func(rows, columns []int32) { columns[side*2*3+5]-- }, "row 3 has a part of a block"},
		{"a block too far right", func(_, columns []int32) {
			for i := range columns[:side*2*side] {
				columns[i] += 16
			}
		}, "row 0 has a part of a block"},
		{"a block in two", func(_, columns []int32) {
			for i := range columns[:side*2*side] {
				if i%(2*side) > 0 {
					columns[i] += side
				}
			}
		}, "row 0 has a part of a block"},
		{"a shorter row", func(rows, columns []int32) { rows[7]-- }, "row 6 has a part of a block"},
	} {
		p := &model.Param{Rows: 2 * side, Cols: 4 * side}
		rows, columns := []int32{0}, []int32(nil)
		for r := range p.Rows {
			for i := range 2 * side {
				columns = append(columns, int32(i+side*(1-r/side))) // blocks 1 and 2, then 0 and 1
			}
			rows = append(rows, int32(len(columns)))
		}
		c.damage(rows, columns)
		if err := model.CheckBlocks(p, rows, columns); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}
