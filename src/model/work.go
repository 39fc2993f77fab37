package model

import (
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Traits are the facts that the pipeline must know about a part, or about a whole layer.
type Traits struct {
	Feeds   bool // the part reads the data of a microbatch
	Talks   bool // passes exchange messages with the replicas of the stage, collectively
	Selects bool // the output batch differs from the input batch; only a layer's last part may select
	Waits   bool // passes make the host wait for the device
	Once    bool // an extra forward with other weights is not possible (see Watch)
	Learns  bool // the Work is a Learner
	// Rows is the number of values per token that a pass sends to replicas and gets back later.
	// Values that stay on their own replica count too. 0: none.
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

// Work is what a part keeps for one microbatch besides its activations: for example the batch of
// tokens that it selects. The pipeline has a Work for each microbatch in flight and never looks
// inside. A Work must be a pointer that does not change: recorded graphs of passes are keyed by it.
type Work interface {
	// Enter notes b as the input batch and returns a copy of b with this Work, for the part's passes.
	Enter(b *Batch) *Batch
	// Skip is called in place of a forward if the input batch has no tokens.
	Skip() error
	// Leaves returns the part's output batch, known after its forward.
	Leaves() *Batch
	// Worked returns the number of tokens that the part computed, known after its forward.
	Worked() int
	// Expected returns the probability, 0 to 1, that the part computes its batch: below 1 only if
	// a random draw decides that.
	Expected() float64
	// Repeats reports whether passes on batches with equal fields make the same kernel calls, so that
	// a recorded graph can replace them.
	Repeats() bool
}

// Learner is the Work of a part that trains on the predictions of the last layer.
type Learner interface {
	Work
	// Learn passes the predicted next token of each token that reached the last layer, in the order
	// of the batch there. It is called before the backward of the microbatch. The list stays valid
	// until that backward is done.
	Learn(likeliest []int32)
}

// Room allocates memory for a Work, in bytes, on the device and on the host.
type Room interface {
	OnDevice(bytes int64) tensor.Mem
	OnHost(bytes int64) tensor.Mem
}

// NewWork returns the layer's Work of one microbatch; nil if no part has any.
func (l *Layer) NewWork(x *Exec, room Room) Work { return WorkOf(x, l.Parts, room) }

// WorkBytes returns the device memory of the layer's Work of one microbatch.
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

// WorkOf returns the Work of parts that run one after the other: nil, the Work of the only part that
// has one, or one that combines several. A part that itself combines parts gets a place in it, so that
// OfPart finds the batch of this list of parts.
func WorkOf(x *Exec, parts []Part, room Room) Work {
	var together works
	var only Work
	count := 0
	for i, p := range parts {
		if w := p.NewWork(x, room); w != nil {
			together.of[i], only, count = w, w, count+1
		}
	}
	if _, combines := only.(*works); combines || count > 1 {
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

// Heap is a Room that allocates on a device. After the first failure, Err, it returns absent memory.
type Heap struct {
	Device       device.Device
	Err          error // of the first allocation that failed
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

// Free frees all memory.
func (h *Heap) Free() {
	for _, m := range h.device {
		h.Device.Free(m)
	}
	for _, m := range h.host {
		h.Device.FreeHost(m)
	}
	h.device, h.host = nil, nil
}
