// Package kerneltest is the conformance suite of kernel.Backend: a backend and its device come in,
// test results go out. It computes the wanted result of every call in float64, with package ref or
// with a slower definition of its own. On odd shapes it asserts that the backend
//
//   - agrees element by element, within a bound that follows the terms of the
//     sum behind each element;
//   - adds to operands that start as numbers, and overwrites those that start as NaN;
//   - writes nothing else: not its inputs, not the bytes around an operand;
//   - gives equal bits for equal operands, wherever they lie, in whatever order
//     a device runs the threads of a kernel;
//   - gives every sequence the bits that it gets alone;
//   - gives heads that share keys the bits of heads with copies;
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

// Run asserts that k, on memory of dev, is a correct backend. tol is the unit
// of the bounds: the largest relative error of a sum, in terms of the sum of
// its absolute values. 1e-5 suits float32, which is 170 roundings of 2^-24. Where
// elements are bfloat16 it is the unit of wide results only, and bf16Tolerance
// that of others.
func Run(t *testing.T, k kernel.Backend, dev device.Device, tol float64) {
	seen := map[kernel.Op]bool{}
	for _, x := range (maker{k.DType(), k.Products()}).examples() {
		seen[x.Op] = true
		t.Run(x.String(), func(t *testing.T) { agree(t, x, k, dev, tol) })
	}
	for op := range kernel.Ops {
		if !seen[op] {
			t.Errorf("no example of %s, operation %d", op, op)
		}
	}
	t.Run("Aliasing", func(t *testing.T) { aliasing(t, k, dev) })
	t.Run("FixedOverflow", func(t *testing.T) { fixedOverflow(t, k, dev) })
	t.Run("Sequences", func(t *testing.T) { sequences(t, k, dev) })
	t.Run("OneBucket", func(t *testing.T) { oneBucket(t, k, dev) })
	t.Run("SharedKeys", func(t *testing.T) { sharedKeys(t, k, dev) })
	t.Run("Checks", func(t *testing.T) { RunChecks(t, k, dev) })
}

// RunChecks asserts that every call of k panics on a wrong operand. Each operand in turn is an
// element too short, an element too long, or in the wrong space.
func RunChecks(t *testing.T, k kernel.Backend, dev device.Device) {
	dims := kernel.Dims{N: 70, C: 4, O: 5, NNZ: 7, V: 3, B: 2, Longest: 35, NH: 2, KV: 1, HS: 2, K: 3, Buckets: 4, E: 3, Gap: 2}
	for op := range kernel.Ops {
		x := example{Call: kernel.Call{Op: op, Dims: dims, AdamW: kernel.AdamW{Step: 1}}}
		for _, row := range op.Of().Operands {
			p := operand{name: row.Name, kind: row.Kind}
			if row.Kind != kernel.Master || k.DType().Wide() != k.DType() {
				p.data = make([]byte, int64(row.Count(&dims))*row.Kind.Type(k.DType()).Size())
			}
			x.operands = append(x.operands, p)
		}
		for i, p := range x.operands {
			if p.data == nil {
				continue // absent for this element type
			}
			element := p.kind.Type(k.DType()).Size()
			spoil := map[string]func(m tensor.Mem) tensor.Mem{
				"short": func(m tensor.Mem) tensor.Mem { m.Bytes -= element; return m },
				"long":  func(m tensor.Mem) tensor.Mem { m.Bytes += element; return m },
				"space": func(m tensor.Mem) tensor.Mem { m.Space = tensor.Host + tensor.Device - m.Space; return m },
			}
			if op.Of().Operands[i].Count(&dims) == 1 && p.kind >= kernel.Table {
				delete(spoil, "long") // one row of one element more
			}
			for what, wrong := range spoil {
				a := newArena(t, dev, x, k.DType(), 0)
				a.mem[i] = wrong(a.mem[i])
				want := "kernel: " + op.String() + ": " + p.name
				if message := recovered(func() { x.run(k, a.stream, a.mem) }); !strings.HasPrefix(message, want) {
					t.Errorf("%s, %s %s: panic %q, want one that begins with %s", op, p.name, what, message, want)
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

// An Orderer is a device that can run the threads of a kernel in several orders.
type orderer interface {
	// Order chooses the order for a number of 0, 1 or 2.
	Order(number int)
}

// agree makes one call three times, at two places in memory and in three orders of
// threads, and compares the operands afterwards.
func agree(t *testing.T, x example, k kernel.Backend, dev device.Device, tol float64) {
	var first [][]byte
	for i, offset := range []int64{0, 0, 64} {
		if o, ok := dev.(orderer); ok {
			o.Order(i)
		}
		a := newArena(t, dev, x, k.DType(), offset)
		x.run(k, a.stream, a.mem)
		got := a.read(t)
		a.free()
		if first == nil {
			first = got
		}
		for i := range got {
			if !bytes.Equal(got[i], first[i]) {
				t.Fatalf("%s: other bits on another run, %d bytes further into the page", x.operands[i].name, offset)
			}
		}
	}
	for i := range x.operands {
		x.operands[i].compare(t, first[i], k.DType(), tol)
	}
}

// compare reports how many elements of an operand are out of bounds, and the
// first of them.
func (p *operand) compare(t *testing.T, got []byte, d tensor.DType, tol float64) {
	if p.want == nil {
		if !bytes.Equal(got, p.encode(d)) {
			t.Errorf("%s: an input was written", p.name)
		}
		return
	}
	if p.kind.HasDType() && d == tensor.BF16 {
		tol = bf16Tolerance
	}
	elements := p.decode(got, d)
	wrong, first := 0, 0
	for j := range p.want {
		if elements[j] != p.want[j] && !(math.Abs(elements[j]-p.want[j]) <= p.limit(j, tol)) { // NaN is wrong; infinities may be right
			if wrong == 0 {
				first = j
			}
			wrong++
		}
	}
	if wrong > 0 {
		t.Errorf("%s: %d of %d elements wrong, first %d: got %g, want %g ± %.2g",
			p.name, wrong, len(elements), first, elements[first], p.want[first], p.limit(first, tol))
	}
}

// limit returns the largest |got - want| of element j.
func (p *operand) limit(j int, tol float64) float64 {
	if p.bound == nil {
		return p.slack
	}
	return tol*p.bound[j] + p.slack
}
