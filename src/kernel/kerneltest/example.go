package kerneltest

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/tensor"
)

// example is one call with the data that it starts from and should leave.
type example struct {
	kernel.Call
	note     string
	operands []operand
	// do makes the call on the operands in memory; nil: Backend.Run.
	do func(k kernel.Backend, s device.Stream, m []tensor.Mem)
}

// operand is the memory of one argument. A call leaves it as it was unless it
// has a want.
type operand struct {
	name  string
	kind  kernel.Kind
	data  any       // before the call: []float64 of any floating type, []int32, []int64 or []uint64; empty: absent
	want  []float64 // after the call
	bound []float64 // largest |got - want| of each element, in units of the tolerance; nil: 0
	slack float64   // is added to every bound, whatever the tolerance
}

// values are the numbers of operands, by name.
type values map[string][]float64

// judge returns the values that operands should have after a call, and their bounds
// in units of the tolerance, from the values before it.
type judge func(c kernel.Call, before values) (want, bound values)

// example makes a call. Operands that given does not name are drawn at random,
// those that it names as nil are absent. A nil judge is termwise.
func (of maker) example(c kernel.Call, note string, given map[string]any, j judge) example {
	x, r, before := example{Call: c, note: note}, of.draw(drawnSeed), values{}
	for _, row := range c.Op.Of().Operands {
		p := operand{name: row.Name, kind: row.Kind}
		data, ok := given[row.Name]
		switch {
		case ok:
			p.data = data
		case row.Use == kernel.Set:
			p.data = slices.Repeat([]float64{math.NaN()}, row.Count(&c.Dims)) // none of them may stay
		case row.Kind == kernel.Master && of.dtype.Wide() == of.dtype:
		case row.Kind == kernel.U64:
			p.data = r.bits(c.N, 0.7)
		default:
			p.data = r.normal(row.Count(&c.Dims))
		}
		before[p.name] = numbers(p.data)
		x.operands = append(x.operands, p)
	}
	if j == nil {
		j = termwise(of.reference)
	}
	want, bound := j(c, before)
	for i, row := range c.Op.Of().Operands {
		if p := &x.operands[i]; row.Use != kernel.Read && p.data != nil {
			p.want, p.bound = want[p.name], bound[p.name]
		}
	}
	return x
}

// numbers returns floating-point data, and counts as such; nil of other data.
func numbers(data any) []float64 {
	switch x := data.(type) {
	case []float64:
		return x
	case []int32:
		return widened(x)
	case []int64:
		return widened(x)
	}
	return nil
}

func widened[T int32 | int64](x []T) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = float64(x[i])
	}
	return y
}

// reference returns the values after a call of package ref in float64.
func reference(c kernel.Call, before values) values { return after(ref.New(tensor.F64), c, before) }

// reference is the function reference, with operands of dense products rounded as of.products says.
func (of maker) reference(c kernel.Call, before values) values {
	if of.products == of.dtype {
		return reference(c, before)
	}
	return after(ref.NewRounded(tensor.F64), c, before)
}

// after returns the values after a call of k, whose elements are float64.
func after(k kernel.Backend, c kernel.Call, before values) values {
	dev := cpu.New(device.NewWall())
	after, whole := values{}, map[string][]int32{}
	for i, row := range c.Op.Of().Operands {
		x := slices.Clone(before[row.Name])
		switch row.Kind {
		case kernel.I32:
			indices := make([]int32, len(x))
			for j := range x {
				indices[j] = int32(x[j])
			}
			whole[row.Name], c.Mem[i] = indices, tensor.From(indices)
			continue
		case kernel.Master:
			continue
		}
		if row.Use == kernel.Set {
			clear(x)
		}
		after[row.Name], c.Mem[i] = x, tensor.From(x)
	}
	k.Run(dev.NewStream(), c)
	for name, x := range whole {
		after[name] = widened(x)
	}
	return after
}

// termwise is the judge of results that are sums of products: their errors are
// bounded by the same sums of absolute values (Higham 2002, section 3.1).
func termwise(result func(kernel.Call, values) values) judge {
	return func(c kernel.Call, before values) (want, bound values) {
		sizes := maps.Clone(before)
		for _, row := range c.Op.Of().Operands {
			if row.Kind != kernel.I32 {
				sizes[row.Name] = abs(before[row.Name])
			}
		}
		return result(c, before), result(c, sizes)
	}
}

// bounded is the judge that wants the results of package ref, with bounds of its own.
func (of maker) bounded(bound func(d kernel.Dims, before, want values) values) judge {
	return func(c kernel.Call, before values) (values, values) {
		want := of.reference(c, before)
		return want, bound(c.Dims, before, want)
	}
}

// run makes the call on operands in memory.
func (x *example) run(k kernel.Backend, s device.Stream, m []tensor.Mem) {
	if x.do != nil {
		x.do(k, s, m)
		return
	}
	c := x.Call
	copy(c.Mem[:], m)
	k.Run(s, c)
}

func (x *example) String() string {
	d := x.Dims
	name := x.Op.String() + "/n=" + fmt.Sprint(d.N)
	for _, dim := range []struct {
		name   string
		length int
	}{{"c", d.C}, {"o", d.O}, {"v", d.V}, {"first", x.First}, {"longest", d.Longest}, {"nh", d.NH}, {"kv", d.KV}, {"hs", d.HS}, {"k", d.K}, {"e", d.E}, {"gap", d.Gap}} {
		if dim.length > 0 {
			name += fmt.Sprintf(",%s=%d", dim.name, dim.length)
		}
	}
	return name + x.note
}
