package model

import (
	"errors"
	"math"

	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// WatchNanoseconds counts what the second model's forwards of a layer, and comparisons, took (see Watch).
const WatchNanoseconds = "reference_nanoseconds"

// referenceSection is a copy of a layer's weights in int8, which is compared with them
// later: for each row a scale, F32, then the values of all rows. It lies in the memory of
// the host.
const referenceSection = "reference"

// Watch compares layers, in the first microbatches of a step, with what a second model makes of
// them: all layers with their references' weights, each fed by the one before. The reference of a
// layer that has none, or whose forward cannot be done again, is the layer itself.
type Watch struct {
	Layers       []int // of the chain, ascending: those that are compared
	Microbatches int   // of the first replica
	// Compare receives the states that leave a layer for a microbatch: the model's, and the second
	// model's. Each has a row for each sequence, 0 where a token is absent. Compare returns its
	// findings, as names and values. The work of the stage up to the states is done.
	Compare func(layer, microbatch int, live, reference [][]float32) []cost.Count
}

// Last returns the last layer that is compared.
func (w *Watch) Last() int { return w.Layers[len(w.Layers)-1] }

// Repeats reports whether a forward of such a layer can be done again beside the live one:
// it depends on nothing but its weights and what enters, and tells nobody else of it. A
// layer that routes tokens makes a batch that the backward needs.
func (d Description) Repeats() bool {
	return !d.Traits().Once
}

// rows returns the lengths of the rows of a parameter's stored values: a vector is one.
func (p *Param) rows() (count, length int) {
	length = p.Cols
	if length == 1 {
		length = p.Rows
	}
	return (p.Stored() + length - 1) / length, length
}

// referenceSize returns the rows of all parameters, and the bytes of their copy.
func (l *Layer) referenceSize() (rows int, bytes int64) {
	values := 0
	for _, p := range l.params {
		count, _ := p.rows()
		rows, values = rows+count, values+p.Stored()
	}
	return rows, 4*int64(rows) + int64(values)
}

// Referred reports whether layers of the chain have references: all but the head and exits.
func (d Description) Referred() bool { return d.Kind != Head && d.Kind != Exit }

// ReferenceBytes returns, for every layer of the dense chain, the size of a reference of
// it; 0 of those that have none.
func ReferenceBytes(c Config, t tensor.DType) []int64 {
	var list []int64
	for id, d := range c.Chain() {
		bytes := int64(0)
		if d.Referred() {
			_, bytes = outline(c, d, header{Layer: id}, t).referenceSize()
		}
		list = append(list, bytes)
	}
	return list
}

// Refer makes the weights, as they are between two steps, the layer's reference. Collective over
// the replicas if the layer is sliced.
func (l *Layer) Refer(x *Exec) error {
	rows, bytes := l.referenceSize()
	section, ok := l.State(referenceSection)
	if !ok || section.Bytes != bytes || section.Mem.IsZero() {
		if _, err := l.AllocState(referenceSection, bytes); err != nil {
			return err
		}
		section, _ = l.State(referenceSection)
	}
	scales, values := halves(section.Mem, rows)
	for _, p := range l.params {
		var host tensor.Mem
		err := l.WithMaster(x, p, func() (err error) {
			host, err = device.Read(l.device, p.Wide())
			return err
		})
		if err != nil {
			return err
		}
		weights, n := wide(host, l.dtype.Wide()), p.Stored()
		count, length := p.rows()
		for row := range count {
			lo, hi := row*length, min((row+1)*length, n)
			scales[row] = quantise(values[lo:hi], weights, lo)
		}
		scales, values = scales[count:], values[n:]
	}
	return nil
}

// halves returns the scales of the rows, and the values.
func halves(reference tensor.Mem, rows int) (scales []float32, values []byte) {
	cut := 4 * int64(rows)
	return tensor.Of[float32](reference.Span(0, cut)), tensor.Of[byte](reference.Span(cut, reference.Bytes-cut))
}

// quantise sets row to weights [first, first+len(row)) over the scale that it returns: the
// largest of them is 127.
func quantise(row []byte, weights func(int) float64, first int) float32 {
	largest := 0.0
	for i := range row {
		largest = max(largest, math.Abs(weights(first+i)))
	}
	scale := float32(largest / 127)
	if scale == 0 || math.IsInf(float64(scale), 1) || scale != scale {
		clear(row)
		return 0
	}
	for i := range row {
		row[i] = byte(int8(max(-127, min(127, math.RoundToEven(weights(first+i)/float64(scale))))))
	}
	return scale
}

// wide returns what reads elements of host memory.
func wide(m tensor.Mem, d tensor.DType) func(int) float64 {
	switch d {
	case tensor.F64:
		v := tensor.Of[float64](m)
		return func(i int) float64 { return v[i] }
	case tensor.BF16:
		v := tensor.Of[uint16](m)
		return func(i int) float64 { return float64(tensor.FromBF16(v[i])) }
	}
	v := tensor.Of[float32](m)
	return func(i int) float64 { return float64(v[i]) }
}

// Refers reports whether the layer has a reference of the weights that it stores now:
// pruned matrices in CSR have others than before.
func (l *Layer) Refers() bool {
	section, ok := l.State(referenceSection)
	_, bytes := l.referenceSize()
	return ok && !section.Mem.IsZero() && section.Bytes == bytes
}

// restored writes the reference's weights into dst, which is a slab of weights.
func (l *Layer) restored(dst tensor.Mem) error {
	section, _ := l.State(referenceSection)
	rows, _ := l.referenceSize()
	scales, values := halves(section.Mem, rows)
	mirror, first := device.Mirror(dst), 0
	for _, p := range l.params {
		store, n := writer(span(mirror, l.dtype, first, first+p.Stored()), l.dtype), p.Stored()
		count, length := p.rows()
		for i := range n {
			store(i, float64(scales[i/length])*float64(int8(values[i])))
		}
		scales, values, first = scales[count:], values[n:], first+l.room(p)
	}
	return device.Write(l.device, dst, mirror)
}

// writer returns what sets elements of host memory.
func writer(m tensor.Mem, d tensor.DType) func(i int, x float64) {
	switch d {
	case tensor.F64:
		v := tensor.Of[float64](m)
		return func(i int, x float64) { v[i] = x }
	case tensor.BF16:
		v := tensor.Of[uint16](m)
		return func(i int, x float64) { v[i] = tensor.ToBF16(float32(x)) }
	}
	v := tensor.Of[float32](m)
	return func(i int, x float64) { v[i] = float32(x) }
}

// ReferenceForward returns what leaves the layer for a batch if its weights are the reference's,
// in memory of room. The live layer stays as it is. It waits for the stream.
func (l *Layer) ReferenceForward(x *Exec, b *Batch, room *Heap, inp tensor.Mem, tokens, targets []int32) (tensor.Mem, error) {
	memory := Heap{Device: l.device}
	defer memory.Free()
	if b.Work != nil { // the live one is the backward's
		b = l.NewWork(x, &memory).Enter(b)
	}
	sizes := l.Sizes(x)
	slab, left := memory.OnDevice(int64(l.all)*l.dtype.Size()), room.OnDevice(l.Leaves().Bytes(x, b.Tokens))
	scratch := Saved{Kept: memory.OnDevice(sizes.Kept), Again: memory.OnDevice(sizes.Again)}
	if err := errors.Join(memory.Err, room.Err, x.Stream.Sync()); err != nil {
		return left, err
	}
	if err := l.restored(slab); err != nil {
		return left, err
	}
	first := 0
	for _, p := range l.params {
		defer func(live tensor.Mem) { p.W = live }(p.W)
		p.W = span(slab, l.dtype, first, first+p.Stored())
		first += l.room(p)
	}
	if l.Traits.Feeds {
		l.Feed(x, b, scratch, tokens, targets)
	}
	err := l.Forward(x, b, scratch, inp)
	x.Stream.Copy(left, l.Output(x, b, scratch))
	return left, errors.Join(err, x.Stream.Sync())
}

// Sequences returns the states that leave the layer for a batch, whose work is done: a row for
// each sequence, 0 where a token is not there. States come first where more leaves the layer.
func (l *Layer) Sequences(x *Exec, b *Batch, left tensor.Mem) ([][]float32, error) {
	out, err := device.Read(l.device, left)
	if err != nil {
		return nil, err
	}
	value, width := wide(out, l.dtype), l.config.Hidden
	rows := make([][]float32, x.B)
	for i := range rows {
		rows[i] = make([]float32, x.T*width)
	}
	for i := range b.Queries {
		at := int(b.At(i))
		row := rows[at/x.T][at%x.T*width:][:width]
		for j := range row {
			row[j] = float32(value(i*width + j))
		}
	}
	return rows, nil
}
