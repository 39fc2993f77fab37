//go:build cuda && cgo

package cuda

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// trial is a product with operands, which algorithms are tried on.
type trial struct {
	d          device.Device
	s          device.Stream
	call       kernel.Call
	op         *kernel.Operation
	pattern    tensor.Mem // on the host: numbers in [-1, 1)
	sample     tensor.Mem // on the host: of a result
	want       []float32  // samples of the first algorithm's results; nil before
	start, end device.Event
}

func newTrial(d device.Device, s device.Stream, p kernel.Product, t tensor.DType) (*trial, error) {
	m := &trial{d: d, s: s, op: p.Op.Of(), call: kernel.Call{Op: p.Op, Dims: kernel.Dims{N: p.N, C: p.C, O: p.O}}}
	var err error
	if m.sample, err = d.AllocHost(tuneSample); err != nil {
		return m, err
	}
	if m.pattern, err = d.AllocHost(1 << 20); err != nil {
		return m, err
	}
	rnd := rand.New(rand.NewPCG(1, 2)) // fixed seed: every rank measures the same
	fill(m.pattern, t, func() float32 { return 2*rnd.Float32() - 1 })
	for i, operand := range m.op.Operands {
		if operand.Optional && !p.Bias {
			continue
		}
		bytes := int64(operand.Count(&m.call.Dims)) * operand.Kind.Type(t).Size()
		if m.call.Mem[i], err = d.Alloc(bytes); err != nil {
			return m, err
		}
		if operand.Use != kernel.Read {
			continue
		}
		for at := int64(0); at < bytes; at += m.pattern.Bytes {
			part := min(m.pattern.Bytes, bytes-at)
			s.Copy(m.call.Mem[i].Span(at, part), m.pattern.Span(0, part))
		}
	}
	return m, s.Sync()
}

func (m *trial) free() {
	for _, mem := range m.call.Mem {
		m.d.Free(mem)
	}
	m.d.FreeHost(m.pattern)
	m.d.FreeHost(m.sample)
}

// run returns the seconds of a product by an algorithm. The algorithm's results must equal those of
// the first one, up to rounding.
func (m *trial) run(k *backend, c choice) (seconds float64, err error) {
	if err := k.choose(c); err != nil {
		return 0, err
	}
	got, err := m.make(k)
	if err != nil {
		return 0, err
	}
	if m.want == nil {
		m.want = got
	}
	if !near(got, m.want) {
		return 0, errors.New("an algorithm's results are wrong")
	}
	m.start = m.s.Record(m.start)
	for range tuneRuns {
		k.Run(m.s, m.call)
	}
	m.end = m.s.Record(m.end)
	if err := m.s.Sync(); err != nil {
		return 0, err
	}
	return (m.end.Seconds() - m.start.Seconds()) / tuneRuns, nil
}

// make has a backend make the product, whose sums begin at zero, and returns its results.
func (m *trial) make(k *backend) ([]float32, error) {
	for i, operand := range m.op.Operands {
		if operand.Use == kernel.Update {
			m.s.Zero(m.call.Mem[i])
		}
	}
	k.Run(m.s, m.call)
	return m.results(k.DType())
}

// results returns the beginning and the end of what the product has made.
func (m *trial) results(t tensor.DType) ([]float32, error) {
	var list []float32
	for i, operand := range m.op.Operands {
		mem := m.call.Mem[i]
		if operand.Use == kernel.Read || mem.IsZero() {
			continue
		}
		part := min(tuneSample, mem.Bytes)
		for _, at := range []int64{0, mem.Bytes - part} {
			m.s.Copy(m.sample.Span(0, part), mem.Span(at, part))
			if err := m.s.Sync(); err != nil {
				return nil, err
			}
			list = append(list, floats(m.sample.Span(0, part), operand.Kind.Type(t))...)
		}
	}
	return list, nil
}

// fill sets host memory to numbers of a type, BF16 or F32.
func fill(m tensor.Mem, t tensor.DType, next func() float32) {
	if t == tensor.BF16 {
		for i := range tensor.Of[uint16](m) {
			tensor.Of[uint16](m)[i] = tensor.ToBF16(next())
		}
		return
	}
	for i := range tensor.Of[float32](m) {
		tensor.Of[float32](m)[i] = next()
	}
}

// floats returns the numbers of a type in host memory.
func floats(m tensor.Mem, t tensor.DType) []float32 {
	if t != tensor.BF16 {
		return slices.Clone(tensor.Of[float32](m))
	}
	var list []float32
	for _, bits := range tensor.Of[uint16](m) {
		list = append(list, tensor.FromBF16(bits))
	}
	return list
}

// near reports whether numbers are finite and about the same.
func near(got, want []float32) bool {
	magnitude := func(x float32) float64 { return math.Abs(float64(x)) }
	largest := 0.0
	for _, x := range want {
		largest = max(largest, magnitude(x))
	}
	for i, x := range got {
		if !(magnitude(x-want[i]) <= tuneError*largest) { // of a NaN nothing is true
			return false
		}
	}
	return !math.IsInf(largest, 0)
}
