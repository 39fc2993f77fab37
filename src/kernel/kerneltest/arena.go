package kerneltest

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// guard is the bytes kept on both sides of an operand, filled with guardByte.
const (
	guard     = 64
	guardByte = 0xa5
)

// arena is device memory with the operands of one call, each between guards.
type arena struct {
	dev    device.Device
	stream device.Stream
	blocks []tensor.Mem // allocations
	mem    []tensor.Mem // operands, inside blocks
}

// newArena places the operands of x offset bytes further than dev aligns.
func newArena(t *testing.T, dev device.Device, x example, d tensor.DType, offset int64) *arena {
	t.Helper()
	a := &arena{dev: dev, stream: dev.NewStream()}
	for _, op := range x.operands {
		data := op.encode(d)
		block, err := dev.Alloc(offset + guard + int64(len(data)) + guard)
		if err != nil {
			t.Fatal(err)
		}
		image := bytes.Repeat([]byte{guardByte}, int(block.Bytes))
		copy(image[offset+guard:], data)
		a.stream.Copy(block, tensor.From(image))
		a.blocks = append(a.blocks, block)
		if len(data) == 0 {
			a.mem = append(a.mem, tensor.Mem{})
		} else {
			a.mem = append(a.mem, block.Span(offset+guard, int64(len(data))))
		}
	}
	if err := a.stream.Sync(); err != nil {
		t.Fatal(err)
	}
	return a
}

// read returns the bytes of the operands. A changed guard fails the test.
func (a *arena) read(t *testing.T) [][]byte {
	t.Helper()
	var operands [][]byte
	for i, block := range a.blocks {
		image := make([]byte, block.Bytes)
		a.stream.Copy(tensor.From(image), block)
		if err := a.stream.Sync(); err != nil {
			t.Fatal(err)
		}
		end := int64(len(image)) - guard
		begin := end - a.mem[i].Bytes
		around := append(bytes.Clone(image[:begin]), image[end:]...)
		if bytes.Count(around, []byte{guardByte}) != len(around) {
			t.Errorf("operand %d: bytes outside it were written", i)
		}
		operands = append(operands, image[begin:end])
	}
	return operands
}

func (a *arena) free() {
	for _, block := range a.blocks {
		a.dev.Free(block)
	}
	a.stream.Close()
}

// encode returns the bytes that an operand's data has in memory.
func (p *operand) encode(d tensor.DType) []byte {
	data := p.data
	if x, ok := data.([]float64); ok {
		switch p.kind.Type(d) {
		case tensor.F32:
			data = converted(x, func(x float64) float32 { return float32(x) })
		case tensor.BF16:
			data = converted(x, func(x float64) uint16 { return tensor.ToBF16(float32(x)) })
		}
	}
	if data == nil {
		return nil
	}
	b, err := binary.Append(nil, binary.NativeEndian, data)
	if err != nil {
		panic("kerneltest: " + err.Error())
	}
	return b
}

// decode returns the elements behind b.
func (p *operand) decode(b []byte, d tensor.DType) []float64 {
	order := binary.NativeEndian
	var x []float64
	for d = p.kind.Type(d); len(b) > 0; b = b[d.Size():] {
		switch d {
		case tensor.BF16:
			x = append(x, float64(tensor.FromBF16(order.Uint16(b))))
		case tensor.F32:
			x = append(x, float64(math.Float32frombits(order.Uint32(b))))
		case tensor.F64:
			x = append(x, math.Float64frombits(order.Uint64(b)))
		case tensor.I32:
			x = append(x, float64(int32(order.Uint32(b))))
		case tensor.U64: // halves, which float64 holds exactly
			word := order.Uint64(b)
			x = append(x, float64(uint32(word)), float64(word>>32))
		case tensor.I64:
			x = append(x, float64(int64(order.Uint64(b))))
		}
	}
	return x
}
