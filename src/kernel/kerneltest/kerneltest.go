// Package kerneltest is the conformance suite of kernel.Backend: a backend and
// its device come in, test results go out. It computes what every call should
// give in float64, with package ref or with a slower definition of its own,
// and asserts on odd shapes that the backend
//
//   - agrees element by element, within a bound that follows the terms of the
//     sum behind each element, adding to what it must add to (starting from
//     numbers) and overwriting what it must set (starting from NaN);
//   - writes nothing else: not its inputs, not the bytes around an operand;
//   - gives equal bits for equal operands, wherever they lie;
//   - panics on an operand of wrong length or in the wrong space.
package kerneltest

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// call is one call of a backend with all that it needs and should give.
type call struct {
	name     string // method/shape
	operands []operand
	do       func(k kernel.Backend, s device.Stream, m []tensor.Mem) // m as operands
}

// operand is the memory of one argument. A call leaves it as it was unless it
// has a want.
type operand struct {
	data  any       // what is there before: floats, wides, doubles, []int32, []int64 or []uint64; empty: absent
	want  []float64 // what is there after
	bound []float64 // largest |got - want| of each element, in units of the tolerance; nil: 0
	slack float64   // what every bound is more than that, whatever the tolerance
}

// Run asserts that k, on memory of dev, is a correct backend. tol is the unit
// of the bounds: the largest relative error of a sum, in terms of the sum of
// its absolute values. 1e-5 suits float32, which is 170 roundings of 2^-24. Where
// elements are bfloat16 it is the unit of wide results only, and bf16Tolerance
// that of others.
func Run(t *testing.T, k kernel.Backend, dev device.Device, tol float64) {
	of := maker{k.DType()}
	all := of.calls()
	if _, ok := k.(kernel.Fuser); ok {
		all = append(all, of.fused()...)
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) { agree(t, c, k, dev, tol) })
	}
	t.Run("Aliasing", func(t *testing.T) { aliasing(t, k, dev) })
	t.Run("Checks", func(t *testing.T) { RunChecks(t, k, dev) })
}

// RunChecks asserts that every call of k panics if any one of its operands is
// an element too short, an element too long, or in the wrong space.
func RunChecks(t *testing.T, k kernel.Backend, dev device.Device) {
	for _, c := range (maker{k.DType()}).smallCalls() {
		for i, op := range c.operands {
			if len(encode(op.data, k.DType())) == 0 {
				continue // absent for this element type
			}
			element := elementSize(op.data, k.DType())
			spoil := map[string]func(m tensor.Mem) tensor.Mem{
				"short": func(m tensor.Mem) tensor.Mem { m.Bytes -= element; return m },
				"long":  func(m tensor.Mem) tensor.Mem { m.Bytes += element; return m },
				"space": func(m tensor.Mem) tensor.Mem { m.Space = tensor.Host + tensor.Device - m.Space; return m },
			}
			for what, wrong := range spoil {
				a := newArena(t, dev, c, k.DType(), 0)
				a.mem[i] = wrong(a.mem[i])
				if message := recovered(func() { c.do(k, a.stream, a.mem) }); !strings.HasPrefix(message, "kernel: ") {
					t.Errorf("%s, operand %d %s: panic %q, want one that begins with kernel:", c.name, i, what, message)
				}
				a.free()
			}
		}
	}
}

// bf16Tolerance is two roundings of 2^-9, as products of rounded probabilities
// have them, doubled.
const bf16Tolerance = 1.0 / 128

// recovered returns the string that f panics with, "" if it does not.
func recovered(f func()) (message string) {
	defer func() {
		if r := recover(); r != nil {
			message, _ = r.(string)
		}
	}()
	f()
	return ""
}

// agree makes one call three times, at two places in memory, and compares what it leaves.
func agree(t *testing.T, c call, k kernel.Backend, dev device.Device, tol float64) {
	var first [][]byte
	for _, offset := range []int64{0, 0, 64} {
		a := newArena(t, dev, c, k.DType(), offset)
		c.do(k, a.stream, a.mem)
		got := a.read(t)
		a.free()
		if first == nil {
			first = got
		}
		for i := range got {
			if !bytes.Equal(got[i], first[i]) {
				t.Fatalf("operand %d: other bits on another run, %d bytes further into the page", i, offset)
			}
		}
	}
	for i, op := range c.operands {
		compare(t, i, op, first[i], k.DType(), tol)
	}
}

// compare reports how many elements of operand i are out of bounds, and the
// first of them.
func compare(t *testing.T, i int, op operand, got []byte, d tensor.DType, tol float64) {
	if op.want == nil {
		if !bytes.Equal(got, encode(op.data, d)) {
			t.Errorf("operand %d: an input was written", i)
		}
		return
	}
	if _, ok := op.data.(floats); ok && d == tensor.BF16 {
		tol = bf16Tolerance
	}
	values := decode(got, op.data, d)
	wrong, first := 0, 0
	for j := range op.want {
		if !(math.Abs(values[j]-op.want[j]) <= op.limit(j, tol)) { // NaN is wrong
			if wrong == 0 {
				first = j
			}
			wrong++
		}
	}
	if wrong > 0 {
		t.Errorf("operand %d: %d of %d elements wrong, first %d: got %g, want %g ± %.2g",
			i, wrong, len(values), first, values[first], op.want[first], op.limit(first, tol))
	}
}

// limit returns the largest |got - want| of element j.
func (op operand) limit(j int, tol float64) float64 {
	if op.bound == nil {
		return op.slack
	}
	return tol*op.bound[j] + op.slack
}
