package model

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Traits says what the pipeline must know of a part, or of a whole layer.
type Traits struct {
	Feeds   bool // the part reads the data of a microbatch
	Talks   bool // passes exchange messages with the replicas of the stage
	Selects bool // another batch leaves the part than enters it; only a layer's last part selects
	Waits   bool // passes make the host wait for the device
	Once    bool // a forward cannot be done again beside the live one, on other weights
	Learns  bool // the Work is a Learner
	// Rows is how many values for each token passes send to replicas and get back: the whole rows
	// of all replicas, wherever they go. 0: none.
	Rows int
}

// Or returns the traits of two parts together.
func (t Traits) Or(u Traits) Traits {
	return Traits{t.Feeds || u.Feeds, t.Talks || u.Talks, t.Selects || u.Selects, t.Waits || u.Waits, t.Once || u.Once, t.Learns || u.Learns, t.Rows + u.Rows}
}

// TraitsOf returns the traits of parts together.
func TraitsOf(parts []Part) (t Traits) {
	for _, p := range parts {
		t = t.Or(p.Traits())
	}
	return t
}

// Work is what a part keeps of one microbatch beside its activations: for example the
// batch of tokens that it selects, or where tokens go. The pipeline holds
// a Work for each microbatch in flight and never looks inside. A Work is a pointer, and
// stays where it is: graphs of passes are keyed by it.
type Work interface {
	// Enter returns b as the part's passes see it: with this Work.
	Enter(b *Batch) *Batch
	// Skip stands for the forward of a batch without tokens, which is left out.
	Skip() error
	// Leaves returns the batch that leaves the part, once its forward is done.
	Leaves() *Batch
	// Worked returns how many tokens the part computes, once its forward is done.
	Worked() int
	// Expected returns the share of the steps in which the part computes tokens, as far as
	// that is drawn at random: 1 of most.
	Expected() float64
	// Repeats reports whether two passes of batches with equal fields are the same calls.
	Repeats() bool
}

// Learner is the Work of a part whose weights learn from what the last layer says of tokens.
type Learner interface {
	Work
	// Learn gives the tokens that the last layer found likeliest behind those that reached it, in
	// their order. It is called before the backward of the microbatch; the list lasts until that is done.
	Learn(likeliest []int32)
}

// Room is where a Work takes its memory, in bytes, of the device and of the host.
type Room interface {
	OnDevice(bytes int64) tensor.Mem
	OnHost(bytes int64) tensor.Mem
}

// NewWork returns the layer's Work of one microbatch; nil if no part has any.
func (l *Layer) NewWork(x *Exec, room Room) Work { return WorkOf(x, l.Parts, room) }

// WorkBytes returns the memory of the device that a Work takes.
func (l *Layer) WorkBytes(x *Exec) int64 {
	var bytes deviceBytes
	l.NewWork(x, &bytes)
	return int64(bytes)
}

// deviceBytes is a Room that only adds up the device's bytes.
type deviceBytes int64

func (c *deviceBytes) OnDevice(bytes int64) tensor.Mem {
	*c += deviceBytes(bytes)
	return tensor.Mem{}
}

func (*deviceBytes) OnHost(int64) tensor.Mem { return tensor.Mem{} }

// newWork returns the Work of parts that passes do one after the other: that of the one
// part that has any, or else all of them together.
func WorkOf(x *Exec, parts []Part, room Room) Work {
	var together works
	var only Work
	count := 0
	for i, p := range parts {
		if w := p.NewWork(x, room); w != nil {
			together.of[i], only, count = w, w, count+1
		}
	}
	if count > 1 {
		return &together
	}
	return only
}

// works is the Work of several parts, by part; nil of those that have none.
type works struct {
	origin  *Batch
	batch   Batch
	of      [MostParts]Work
	batches [MostParts]*Batch // that the parts' passes see
}

// Enter lets b enter every part.
func (w *works) Enter(b *Batch) *Batch {
	w.origin, w.batch = b, *b
	w.batch.Work = w
	for i, part := range w.of {
		if w.batches[i] = b; part != nil {
			w.batches[i] = part.Enter(b)
		}
	}
	return &w.batch
}

// Skip skips every part.
func (w *works) Skip() error {
	for _, part := range w.of {
		if part != nil {
			if err := part.Skip(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Leaves returns what leaves the last part that has a Work.
func (w *works) Leaves() *Batch {
	leaves := w.origin
	for _, part := range w.of {
		if part != nil {
			leaves = part.Leaves()
		}
	}
	return leaves
}

// Worked returns what the first part says that has a Work: a part that selects comes last.
func (w *works) Worked() int {
	for _, part := range w.of {
		if part != nil {
			return part.Worked()
		}
	}
	return w.origin.Computes()
}

// Expected returns the mean of the parts that have a Work.
func (w *works) Expected() float64 {
	sum, n := 0.0, 0.0
	for _, part := range w.of {
		if part != nil {
			sum, n = sum+part.Expected(), n+1
		}
	}
	return sum / n
}

// Repeats reports whether all parts repeat.
func (w *works) Repeats() bool {
	for _, part := range w.of {
		if part != nil && !part.Repeats() {
			return false
		}
	}
	return true
}

// OfPart returns the batch that passes of the i-th part see.
func (b *Batch) OfPart(i int) *Batch {
	if w, ok := b.Work.(*works); ok {
		return w.batches[i]
	}
	return b
}

// Heap is a Room of a device. Once an allocation has failed it returns absent memory.
type Heap struct {
	Device       device.Device
	Err          error // the first
	device, host []tensor.Mem
}

func (h *Heap) OnDevice(bytes int64) tensor.Mem { return h.take(h.Device.Alloc, &h.device, bytes) }

func (h *Heap) OnHost(bytes int64) tensor.Mem { return h.take(h.Device.AllocHost, &h.host, bytes) }

func (h *Heap) take(alloc func(int64) (tensor.Mem, error), taken *[]tensor.Mem, bytes int64) tensor.Mem {
	if h.Err != nil {
		return tensor.Mem{}
	}
	var m tensor.Mem
	if m, h.Err = alloc(bytes); !m.IsZero() {
		*taken = append(*taken, m)
	}
	return m
}

// Free gives all memory back.
func (h *Heap) Free() {
	for _, m := range h.device {
		h.Device.Free(m)
	}
	for _, m := range h.host {
		h.Device.FreeHost(m)
	}
	h.device, h.host = nil, nil
}
