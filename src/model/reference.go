package model

import (
	"errors"
	"math"

	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// WatchNanoseconds is the name of a count: nanoseconds of a layer's reference forward and its
// comparison (see Watch).
const WatchNanoseconds = "reference_nanoseconds"

// referenceSection is a copy of a layer's weights in int8, which is compared with them
// later: for each row a scale, F32, then the values of all rows. It lies in the memory of
// the host.
const referenceSection = "reference"

// Watch compares the model with a second model in the first microbatches of a step. The second
// model has the weights of an earlier step: each layer's reference, an int8 copy of its weights. It
// shows how much layers have changed since; kind freeze uses it (Egeria, Wang et al. 2022). Its
// layers run one after the other on the same tokens. A layer without a reference, or with
// Traits.Once, takes part with its present output.
type Watch struct {
	Layers       []int // chain positions of the compared layers, ascending
	Microbatches int   // how many microbatches, the first of replica 0
	// Compare gets a layer's outputs for a microbatch, of the model and of the second model. Each has
	// a row (T·hidden) for each sequence, 0 where a token is absent. Compare returns its findings, as
	// names and values. It may read the outputs at once: the device has finished them.
	Compare func(layer, microbatch int, live, reference [][]float32) []cost.Count
}

// Last returns the chain position of the last compared layer.
func (w *Watch) Last() int { return w.Layers[len(w.Layers)-1] }

// Repeats reports whether an extra forward with other weights is possible (Traits.Once is false). Such
// a forward must depend on weights and input only, and must send nothing. A layer that selects
// tokens has no extra forward: it would replace the batch that the backward needs.
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

// Referred reports whether the layer has a reference (see Watch): all layers but head and exits have.
func (d Description) Referred() bool { return d.Kind != Head && d.Kind != Exit }

// ReferenceBytes returns the bytes of every layer's reference before any pruning, by chain position;
// 0 for layers without a reference.
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

// Refer makes an int8 copy of the present weights, the layer's new reference (see Watch). Call it
// between two steps. Collective over the replicas if the layer is sliced.
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

// Refers reports whether the layer has a reference that fits its stored weights. Pruning to CSR
// changes which weights are stored, so an older reference no longer fits.
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

// ReferenceForward returns the layer's output for a batch, computed with the reference's weights, in
// memory of room. The layer's weights and activations stay as they are. It waits for the stream.
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

// Sequences returns the first Hidden values per token of a layer's output `left`. The result has a
// row (T·Hidden) for each sequence, 0 for absent tokens. The device must have finished the output.
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
