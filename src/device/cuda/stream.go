//go:build cuda && cgo

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"gorgonia.org/cu"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Stream is a queue of the GPU. Kernels are enqueued on its Handle. The oldest open stream is the
// main stream, whose Syncs count the age of kept memory.
type Stream struct {
	d         *Device
	s         cu.Stream
	err       error // the first error since the last Sync
	zero      *anchor
	capturing bool // work is captured into a graph instead of executed
}

// Handle returns the driver's handle, a CUstream.
func (s *Stream) Handle() unsafe.Pointer { return unsafe.Pointer(s.s.C()) }

// Fail makes the next Sync return err, unless there is an earlier error.
func (s *Stream) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// check stores an error of the driver for the next Sync.
func (s *Stream) check(what string, err error) {
	if err != nil {
		s.Fail(fmt.Errorf("cuda: %s: %w", what, explain(err)))
	}
}

// Record returns an event that happens when all work enqueued so far is done.
func (s *Stream) Record(reuse device.Event) device.Event {
	e, ok := reuse.(*event)
	if !ok {
		e = new(event)
	}
	*e = event{d: s.d, e: e.e, anchor: s.zero}
	if e.e == nil {
		e.e, e.err = s.d.events.take()
	}
	if e.err == nil {
		e.err = e.e.Record(s.s)
	}
	s.check("record an event", e.err)
	return e
}

// After makes later work wait for an event of another stream, of a GPU or of another device.
func (s *Stream) After(e device.Event) {
	other, ok := e.(*event)
	switch {
	case !ok:
		s.check("wait for an event", e.Wait())
	case other.err != nil:
		s.Fail(other.err)
	default:
		s.check("wait for an event", s.s.Wait(other.e.Event, 0))
	}
}

// Copy enqueues dst = src. It waits for copies within the host, and for copies from the GPU to host
// memory that is not from AllocHost.
func (s *Stream) Copy(dst, src tensor.Mem) {
	if dst.Bytes != src.Bytes {
		panic("cuda: Copy between different lengths")
	}
	n := dst.Bytes
	if n == 0 {
		return
	}
	if s.capturing && !(s.d.lasts(dst) && s.d.lasts(src)) {
		s.Fail(errors.New("cuda: a graph cannot copy host memory that is not pinned"))
		return
	}
	switch to, from := dst.Space == tensor.Device, src.Space == tensor.Device; {
	case to && from:
		s.check("copy", cu.MemcpyDtoDAsync(address(dst.Ptr), address(src.Ptr), n, s.s))
	case from:
		s.check("copy to the host", cu.MemcpyDtoHAsync(dst.Ptr, address(src.Ptr), n, s.s))
	case to && s.d.pinned.holds(src):
		s.check("copy from the host", cu.MemcpyHtoDAsync(address(dst.Ptr), src.Ptr, n, s.s))
	case to:
		s.check("copy from the host", s.d.staging.copy(s, dst, src))
	default:
		s.check("copy", s.s.Synchronize())
		copy(tensor.Of[byte](dst), tensor.Of[byte](src))
	}
}

// Zero enqueues dst = 0.
func (s *Stream) Zero(dst tensor.Mem) {
	switch {
	case dst.Bytes == 0:
	case dst.Space == tensor.Device:
		s.check("zero", cu.MemsetD8Async(address(dst.Ptr), 0, dst.Bytes, s.s))
	default:
		s.check("zero", s.s.Synchronize())
		clear(tensor.Of[byte](dst))
	}
}

// Sync waits for all enqueued work and returns its first error.
func (s *Stream) Sync() error {
	s.check("work", s.s.Synchronize())
	if s.err == nil {
		s.anchor()
		if slices.Index(s.d.streams, s) == 0 {
			s.d.synced()
		}
	}
	err := s.err
	s.err = nil
	return err
}

// anchor records the host's time for a point on the idle stream: half way between the request for
// an event and its completion.
func (s *Stream) anchor() {
	h, err := s.d.events.take()
	before := device.Monotonic()
	if err == nil {
		err = errors.Join(h.Record(s.s), h.Synchronize())
	}
	s.check("time the stream", err)
	s.zero = &anchor{h, (before + device.Monotonic()) / 2}
}

// Close releases the stream. No work may be enqueued afterwards.
func (s *Stream) Close() {
	if i := slices.Index(s.d.streams, s); i >= 0 {
		s.d.streams = slices.Delete(s.d.streams, i, i+1)
		_ = s.s.Destroy() // the remaining work is still done
	}
}
