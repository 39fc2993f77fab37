package kernel_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

func done(device.Stream, *kernel.Call) {}

// TestMethodsMakeTheirCalls: the operands of every method of Backend are those of
// its operation, in order. Dimensions are compared by kernel/null's test.
func TestMethodsMakeTheirCalls(t *testing.T) {
	const each = 2 // of every dimension
	dims := kernel.Dims{N: each, C: each, O: each, NNZ: each, V: each, B: each, Longest: each, NH: each, KV: each, HS: each, K: each, Buckets: each, E: each, Gap: each}
	const width = each * each // of Rotary's rows, which hold `each` heads
	var made kernel.Call
	var k kernel.Backend = &whole{kernel.NewCalls(tensor.F32, tensor.Host, true, func(_ device.Stream, c *kernel.Call) { made = *c })}
	for op := range kernel.Ops {
		if op.String() == "" {
			t.Fatalf("no row of operations for operation %d, which follows %s", op, op-1)
		}
		dims := dims
		if op == kernel.Rotary {
			dims.C = width
		}
		var operands kernel.Operands
		for i, p := range op.Of().Operands {
			if p.Kind != kernel.Master { // float32 has none
				operands[i] = tensor.From(make([]byte, int64(p.Count(&dims))*p.Kind.Type(tensor.F32).Size()))
			}
		}
		method, left := reflect.ValueOf(k).MethodByName(op.String()), operands[:]
		next := func() tensor.Mem { m := left[0]; left = left[1:]; return m }
		arguments := make([]reflect.Value, method.Type().NumIn())
		for i := range arguments {
			arguments[i] = reflect.New(method.Type().In(i)).Elem()
			switch x := arguments[i].Addr().Interface().(type) {
			case *tensor.Mem:
				*x = next()
			case *kernel.CSR:
				*x = kernel.CSR{Rows: each, Cols: each, NNZ: each, RowPtr: next(), ColIdx: next()}
				if op != kernel.SDDMM && op != kernel.CompactRows {
					x.Values = next()
				}
			case *kernel.Buckets:
				*x = kernel.Buckets{Count: each, Order: next(), Starts: next()}
			case *kernel.AdamW:
				x.Step = 1
			case *int:
				switch left := len(arguments) - 1 - i; {
				case op == kernel.Rotary && left == 2:
					*x = width
				case op != kernel.MagnitudeHistogram || left > 0:
					*x = each
				}
			}
		}
		method.Call(arguments)
		count := len(op.Of().Operands)
		if made.Op != op || !slices.Equal(made.Mem[:count], operands[:count]) || len(left) != len(operands)-count {
			t.Errorf("%s makes a call of %s with operands %v, want %v", op, made.Op, made.Mem, operands)
		}
	}
}

// whole is a backend of calls alone.
type whole struct{ kernel.Calls }

func (*whole) Name() string     { return "" }
func (*whole) Identity() string { return "" }

// TestImpossibleShapesPanic has what the conformance suite, which spoils one
// operand at a time, cannot reach.
func TestImpossibleShapesPanic(t *testing.T) {
	k := &whole{kernel.NewCalls(tensor.F32, tensor.Host, false, done)}
	f := func(n int) tensor.Mem { return tensor.From(make([]float32, n)) }
	i := func(n int) tensor.Mem { return tensor.From(make([]int32, n)) }
	hist := tensor.From(make([]int64, 256))
	for name, call := range map[string]func(){
		"heads do not divide channels": func() { k.AttentionForward(nil, f(4), f(3), f(12), i(2), 1, 1, 1, 4, 3, 3) },
		"no heads":                     func() { k.AttentionBackward(nil, f(12), f(4), f(12), f(4), f(1), i(2), 1, 1, 1, 4, 0, 0) },
		"keys do not divide heads":     func() { k.AttentionForward(nil, f(4), f(4), f(10), i(2), 1, 1, 1, 4, 4, 3) },
		"no keys":                      func() { k.AttentionForward(nil, f(4), f(4), f(4), i(2), 1, 1, 1, 4, 4, 0) },
		"eps below 0":                  func() { k.NormForward(nil, f(1), f(1), f(1), f(1), f(1), f(1), 1, 1, -1) },
		"a mean without a bias":        func() { k.NormForward(nil, f(1), f(1), f(1), f(1), f(1), tensor.Mem{}, 1, 1, 0) },
		"a bias without a mean":        func() { k.NormBackwardWeight(nil, f(1), f(1), f(1), f(1), tensor.Mem{}, f(1), 1, 1) },
		"odd channels of a head":       func() { k.Rotary(nil, f(4), i(1), f(3), 1, 1, 4, 3, false) },
		"heads wider than a row":       func() { k.Rotary(nil, f(4), i(1), f(2), 1, 3, 4, 2, false) },
		"negative dimensions":          func() { k.MatmulForward(nil, f(6), f(2), f(3), tensor.Mem{}, -2, -1, -3) },
		"more tokens than sequences":   func() { k.AttentionForward(nil, f(12), f(3), f(36), i(2), 1, 2, 3, 4, 1, 1) },
		"three buckets": func() {
			k.SparseAttentionForward(nil, f(4), f(1), f(12), i(2), kernel.Buckets{Count: 3, Order: i(2), Starts: i(8)}, 1, 1, 1, 4, 1)
		},
		"part of a row":                      func() { k.EmbeddingForward(nil, f(6), i(3), i(3), f(2), f(3), 3, 2) },
		"no rows":                            func() { k.EmbeddingForward(nil, f(6), i(3), i(3), f(2), f(0), 3, 2) },
		"fixed bits not in bytes":            func() { k.MagnitudeHistogram(nil, hist, f(1), tensor.Mem{}, 1, 0, 4) },
		"all bits fixed":                     func() { k.MagnitudeHistogram(nil, hist, f(1), tensor.Mem{}, 1, 0, 32) },
		"prefix longer than fixed":           func() { k.MagnitudeHistogram(nil, hist, f(1), tensor.Mem{}, 1, 256, 8) },
		"AdamW of wide weights and a master": func() { k.AdamW(nil, f(1), f(1), f(1), f(1), f(1), 1, kernel.AdamW{Step: 1}) },
		"guesses without their gradients": func() {
			k.TakeTokens(nil, kernel.Depths{}, i(1), tensor.From(make([]float64, 5)), f(1), tensor.Mem{}, f(1), f(1), i(2), 1, 1)
		},
		"more choices than experts": func() {
			k.RouteGradient(nil, kernel.Routing{}, f(4), f(6), i(6), tensor.From(make([]float64, 8)), 2, 2, 3)
		},
		"a gap below 0":               func() { k.GroupedForward(nil, f(2), f(2), f(1), i(3), 2, 1, 1, 2, -1) },
		"AdamW before the first step": func() { k.AdamW(nil, f(1), tensor.Mem{}, f(1), f(1), f(1), 1, kernel.AdamW{}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if message, _ := recover().(string); !strings.HasPrefix(message, "kernel: ") {
					t.Errorf("panic %q, want one that begins with kernel:", message)
				}
			}()
			call()
		})
	}
}

func TestAbsentOperandsPass(t *testing.T) {
	k := &whole{kernel.NewCalls(tensor.F32, tensor.Device, false, done)}
	f := func(n int) tensor.Mem {
		m := tensor.From(make([]float32, n))
		m.Space = tensor.Device
		return m
	}
	var absent tensor.Mem // in host space, as all absent memory
	k.MatmulForward(nil, f(6), f(4), f(6), absent, 2, 2, 3)
	k.MatmulForward(nil, absent, absent, f(6), f(3), 0, 2, 3)
	k.MatmulBackwardWeight(nil, f(6), absent, f(6), f(4), 2, 2, 3)
}
