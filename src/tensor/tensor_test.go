package tensor

import (
	"strings"
	"testing"
)

func TestViews(t *testing.T) {
	x := []float32{1, 2, 3, 4}
	m := From(x)
	if m.Bytes != 16 || m.Space != Host || m.IsZero() {
		t.Errorf("view of four floats: %+v", m)
	}
	part := Of[float32](m.Span(4, 8))
	part[0] = 9
	if len(part) != 2 || x[1] != 9 {
		t.Errorf("span [4, 12) is %v of %v", part, x)
	}
	if Of[float32](Mem{}) != nil || !From([]int32(nil)).IsZero() {
		t.Error("nothing has a view")
	}
}

func TestPanics(t *testing.T) {
	m := From([]float64{1, 2})
	for name, f := range map[string]func(){
		"span beyond the end":  func() { m.Span(8, 9) },
		"negative offset":      func() { m.Span(-8, 8) },
		"device memory":        func() { Of[float64](Mem{m.Ptr, m.Bytes, Device}) },
		"unknown element type": func() { DType(99).Size() },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "tensor: ") {
					t.Errorf("%s: %q, want a panic of tensor", name, text)
				}
			}()
			f()
		}()
	}
}

func TestSizes(t *testing.T) {
	for d, want := range map[DType]int64{F32: 4, F64: 8, I32: 4, I64: 8, U64: 8, BF16: 2} {
		if d.Size() != want {
			t.Errorf("%v: %d bytes, want %d", d, d.Size(), want)
		}
	}
}
