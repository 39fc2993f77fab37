package comm_test

import (
	"slices"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/tensor"
)

// late returns the host as a device apart. The host must not touch its memory. Its streams do
// all work as late as device.Stream allows: in Sync, or when something waits for an event.
func late(comm.Transport) (device.Device, error) {
	return &lateDevice{Device: cpu.New(device.NewWall())}, nil
}

// lateCompute is late with one late stream, the first. The other streams do their work at once,
// ahead of all work that they need not wait for.
func lateCompute(comm.Transport) (device.Device, error) {
	return &lateDevice{Device: cpu.New(device.NewWall()), eager: true}, nil
}

type lateDevice struct {
	*cpu.Device
	pinned  []tensor.Mem
	eager   bool // all streams but the first
	streams int  // made so far
}

func (d *lateDevice) Space() tensor.Space { return tensor.Device }

func (d *lateDevice) Alloc(bytes int64) (tensor.Mem, error) {
	m, err := d.Device.Alloc(bytes)
	if !m.IsZero() {
		m.Space = tensor.Device
	}
	return m, err
}

func (d *lateDevice) AllocHost(bytes int64) (tensor.Mem, error) {
	m, err := d.Device.AllocHost(bytes)
	d.pinned = append(d.pinned, m)
	return m, err
}

func (d *lateDevice) FreeHost(m tensor.Mem) {
	d.pinned = slices.DeleteFunc(d.pinned, func(p tensor.Mem) bool { return p == m })
	d.Device.FreeHost(m)
}

// holds reports whether m lies in memory of AllocHost.
func (d *lateDevice) holds(m tensor.Mem) bool {
	return slices.ContainsFunc(d.pinned, func(p tensor.Mem) bool {
		return uintptr(m.Ptr) >= uintptr(p.Ptr) && uintptr(m.Ptr)+uintptr(m.Bytes) <= uintptr(p.Ptr)+uintptr(p.Bytes)
	})
}

func (d *lateDevice) NewStream() device.Stream {
	d.streams++
	return &lateStream{d: d, eager: d.eager && d.streams > 1}
}

// lateStream is a queue of work that is done as late as possible.
type lateStream struct {
	d      *lateDevice
	work   []func() // to be done, the oldest first
	done   int      // how much was done before
	eager  bool     // work is done when it is enqueued
	closed bool
}

func (s *lateStream) push(f func()) {
	if s.closed {
		panic("comm: work for a stream that is closed")
	}
	s.work = append(s.work, f)
	if s.eager {
		s.reach(s.done + len(s.work))
	}
}

// reach does the work before a place in the queue.
func (s *lateStream) reach(place int) {
	for s.done < place {
		f := s.work[0]
		s.work = s.work[1:]
		s.done++
		f()
	}
}

func (s *lateStream) Record(reuse device.Event) device.Event {
	e, ok := reuse.(*lateEvent)
	if !ok {
		e = new(lateEvent)
	}
	s.push(func() {})
	*e = lateEvent{s: s, place: s.done + len(s.work)}
	return e
}

func (s *lateStream) After(e device.Event) {
	recorded := *e.(*lateEvent) // it may be recorded again
	s.push(func() { recorded.s.reach(recorded.place) })
}

func (s *lateStream) Copy(dst, src tensor.Mem) {
	if dst.Bytes != src.Bytes {
		panic("comm: Copy between different lengths")
	}
	if src.Space == tensor.Host && !s.d.holds(src) { // it may be changed at once
		src = tensor.From(slices.Clone(tensor.Of[byte](src)))
	}
	s.push(func() { copy(seenMemory(dst), seenMemory(src)) })
}

func (s *lateStream) Zero(dst tensor.Mem) { s.push(func() { clear(seenMemory(dst)) }) }

// seenMemory returns memory as the device sees it.
func seenMemory(m tensor.Mem) []byte {
	m.Space = tensor.Host
	return tensor.Of[byte](m)
}

func (s *lateStream) Capture(enqueue func()) device.Graph { return device.Calls(enqueue) }

func (s *lateStream) Sync() error {
	s.reach(s.done + len(s.work))
	return nil
}

func (s *lateStream) Close() { s.closed = true }

// lateEvent happens when it is waited for, or asked often.
type lateEvent struct {
	s     *lateStream
	place int // in the queue
	asked int
}

// deferrals is how often an event without a Wait is asked before it happens.
const deferrals = 5

func (e *lateEvent) Wait() error {
	e.s.reach(e.place)
	return nil
}

func (e *lateEvent) Done() (bool, error) {
	if e.asked++; e.asked >= deferrals {
		e.s.reach(e.place)
	}
	return e.s.done >= e.place, nil
}

func (e *lateEvent) Seconds() float64 { return e.s.d.Clock().Now() }
