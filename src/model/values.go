package model

import (
	"math"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Values is a parameter's weights in host memory, in the wide type.
type Values struct {
	f32 []float32
	f64 []float64
}

// View returns host memory of wide elements as numbers.
func View(host tensor.Mem, wide tensor.DType) Values {
	if wide == tensor.F64 {
		return Values{f64: tensor.Of[float64](host)}
	}
	return Values{f32: tensor.Of[float32](host)}
}

// Len returns the number of values.
func (v Values) Len() int { return len(v.f32) + len(v.f64) }

// At returns value i.
func (v Values) At(i int) float64 {
	if v.f64 != nil {
		return v.f64[i]
	}
	return float64(v.f32[i])
}

// Magnitude returns the bits of float32(|value i|), which order as |value i| does.
func (v Values) Magnitude(i int) uint32 {
	x := float32(0)
	if v.f64 != nil {
		x = float32(v.f64[i])
	} else {
		x = v.f32[i]
	}
	return math.Float32bits(x) &^ (1 << 31)
}

// Set rounds x to the type of the values and sets value i.
func (v Values) Set(i int, x float64) {
	if v.f64 != nil {
		v.f64[i] = x
		return
	}
	v.f32[i] = float32(x)
}

// Get returns the weights of a parameter, to read only. They are the master weights if this replica
// has all of them, else the rounded ones. No work on the device may use them meanwhile.
func (l *Layer) Get(p *Param) (Values, error) {
	if l.dtype == tensor.BF16 && (p.role == RoleBorrowed || l.Sliced()) {
		rounded, err := device.Read(l.device, p.W)
		if err != nil {
			return Values{}, err
		}
		v := Values{f32: make([]float32, p.Stored())}
		for i, bits := range tensor.Of[uint16](rounded) {
			v.f32[i] = tensor.FromBF16(bits)
		}
		return v, nil
	}
	host, err := device.Read(l.device, p.Wide())
	return View(host, l.dtype.Wide()), err
}

// Set calls fill to write the weights of a parameter, then rounds them into W. fill must write every
// value; the values before are undefined. No work on the device may use the weights meanwhile.
func (l *Layer) Set(p *Param, fill func(Values) error) error {
	if l.dtype.Wide() == l.dtype {
		mirror := device.Mirror(p.W)
		if err := fill(View(mirror, l.dtype)); err != nil {
			return err
		}
		return device.Write(l.device, p.W, mirror)
	}
	v := Values{f32: make([]float32, p.Stored())}
	if err := fill(v); err != nil {
		return err
	}
	rounded := make([]uint16, len(v.f32))
	for i, x := range v.f32 {
		rounded[i] = tensor.ToBF16(x)
	}
	if !p.Master.IsZero() {
		if err := device.Write(l.device, p.Master, tensor.From(v.f32[p.From:]).Span(0, p.Master.Bytes)); err != nil {
			return err
		}
	}
	return device.Write(l.device, p.W, tensor.From(rounded))
}
