//go:build cuda && cgo

package cuda

import (
	"fmt"
	"slices"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

const (
	// ringBytes has room for the tokens of a step's microbatches, or for two pieces of a larger
	// copy: one is filled while the other is copied.
	ringBytes = 8 << 20
	// pieceBytes is so large that a piece keeps the link busy for far longer than the call that
	// starts its copy.
	pieceBytes = ringBytes / 2
)

// ring is pinned memory between unpinned host memory and the GPU. The owner may change the host
// memory as soon as the copy is enqueued.
type ring struct {
	mem    tensor.Mem
	next   int64     // offset of the next piece
	flight []segment // pieces being copied, the oldest first
	done   []device.Event
}

// segment is a part of the ring that a stream reads until an event.
type segment struct {
	from, to int64
	read     device.Event
}

// copy enqueues dst = src on s, piece by piece.
func (r *ring) copy(s *Stream, dst, src tensor.Mem) error {
	if r.mem.IsZero() {
		var err error
		if r.mem, err = s.d.AllocHost(ringBytes); err != nil {
			return fmt.Errorf("staging memory: %w", err)
		}
	}
	for off := int64(0); off < src.Bytes; off += pieceBytes {
		n := min(pieceBytes, src.Bytes-off)
		offset, err := r.take(n)
		if err != nil {
			return err
		}
		piece := r.mem.Span(offset, n)
		copy(tensor.Of[byte](piece), tensor.Of[byte](src.Span(off, n)))
		s.Copy(dst.Span(off, n), piece)
		r.flight = append(r.flight, segment{offset, offset + n, s.Record(r.event())})
	}
	return nil
}

// take returns the offset of n bytes of the ring. It waits until they are free.
func (r *ring) take(n int64) (int64, error) {
	if r.next+n > r.mem.Bytes {
		r.next = 0
	}
	offset := r.next
	inWay := func(s segment) bool { return s.from < offset+n && offset < s.to }
	for slices.ContainsFunc(r.flight, inWay) {
		if err := r.flight[0].read.Wait(); err != nil {
			return 0, err
		}
		r.done = append(r.done, r.flight[0].read)
		r.flight = slices.Delete(r.flight, 0, 1)
	}
	r.next = offset + n
	return offset, nil
}

// event returns an event that is no longer used, or nil.
func (r *ring) event() device.Event {
	last := len(r.done) - 1
	if last < 0 {
		return nil
	}
	e := r.done[last]
	r.done = r.done[:last]
	return e
}

func (r *ring) close(d *Device) {
	d.FreeHost(r.mem)
	*r = ring{}
}
