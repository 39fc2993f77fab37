//go:build cuda && cgo

package cuda

import (
	"errors"
	"runtime"
	"sync"

	"gorgonia.org/cu"

	"dynmo/src/device"
)

// event is a point in a stream. Its time is that of the stream's last anchor
// before it, plus what the GPU counted in between: the driver tells that in
// single precision, which is exact enough for the length of a step and would not
// be for a run's.
type event struct {
	d       *Device
	e       *handle
	anchor  *anchor
	seconds float64 // once asked
	known   bool
	err     error // of its making
}

// anchor is an event whose time on the host is known.
type anchor struct {
	e  *handle
	at int64 // device.Monotonic
}

// Wait blocks the host until the event has happened.
func (e *event) Wait() error {
	if e.err != nil {
		return e.err
	}
	return explain(e.e.Synchronize())
}

// Done reports whether the event has happened.
func (e *event) Done() (bool, error) {
	if e.err != nil {
		return false, e.err
	}
	err := e.e.Query()
	if errors.Is(err, cu.NotReady) {
		return false, nil
	}
	return err == nil, explain(err)
}

// Seconds returns when the event happened, 0 where the GPU has failed.
func (e *event) Seconds() float64 {
	if e.known || e.err != nil || e.anchor == nil {
		return e.seconds
	}
	if milliseconds, err := e.anchor.e.Elapsed(e.e.Event); err == nil {
		ago := float64(device.Monotonic()-e.anchor.at) / 1e9
		e.seconds = e.d.clock.Now() - ago + milliseconds/1e3
	}
	e.known = true
	return e.seconds
}

// handle is one of the driver's events. When nobody holds it any more it lies on
// the shelf again.
type handle struct{ cu.Event }

// shelf holds the driver's events that nobody uses.
type shelf struct {
	mu   sync.Mutex // the garbage collector puts events back
	free []cu.Event
}

// take returns an event from the shelf, or a new one, with timing.
func (s *shelf) take() (*handle, error) {
	e, ok := s.pop()
	if !ok {
		var err error
		if e, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return nil, err
		}
	}
	h := &handle{e}
	runtime.AddCleanup(h, s.put, e)
	return h, nil
}

func (s *shelf) pop() (cu.Event, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.free) - 1
	if last < 0 {
		return cu.Event{}, false
	}
	e := s.free[last]
	s.free = s.free[:last]
	return e, true
}

func (s *shelf) put(e cu.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, e)
}

// close gives the driver what lies on the shelf; the rest ends with the context.
func (s *shelf) close() error {
	var all error
	for e, ok := s.pop(); ok; e, ok = s.pop() {
		all = errors.Join(all, cu.DestroyEvent(&e))
	}
	return all
}
