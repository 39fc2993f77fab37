//go:build cuda && cgo

package cuda

import (
	"errors"
	"runtime"
	"sync"

	"gorgonia.org/cu"
)

// event is a point in a stream. Its time is that of the stream's previous anchor, plus the GPU's
// time between the two. The driver returns that time in single precision: exact enough for a step,
// but not for a run.
type event struct {
	d       *Device
	e       *handle
	anchor  *anchor
	seconds float64 // cached result of Seconds
	known   bool
	err     error // error of making the event
}

// anchor is an event whose time on the host is known.
type anchor struct {
	e    *handle
	host int64 // device.Monotonic
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

// Seconds returns the time of the event, 0 if the GPU has failed.
func (e *event) Seconds() float64 {
	if e.known || e.err != nil || e.anchor == nil {
		return e.seconds
	}
	if milliseconds, err := e.anchor.e.Elapsed(e.e.Event); err == nil {
		e.seconds = e.d.clock.At(e.anchor.host) + milliseconds/1e3
	}
	e.known = true
	return e.seconds
}

// handle is an event of the driver. It returns to the pool when the garbage collector finds it
// unused.
type handle struct{ cu.Event }

// eventPool has the unused events of the driver.
type eventPool struct {
	mu   sync.Mutex // the garbage collector returns events concurrently
	free []cu.Event
}

// take returns an event from the pool, or a new one, with timing.
func (p *eventPool) take() (*handle, error) {
	e, ok := p.pop()
	if !ok {
		var err error
		if e, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return nil, err
		}
	}
	h := &handle{e}
	runtime.AddCleanup(h, p.put, e)
	return h, nil
}

func (p *eventPool) pop() (cu.Event, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.free) - 1
	if last < 0 {
		return cu.Event{}, false
	}
	e := p.free[last]
	p.free = p.free[:last]
	return e, true
}

func (p *eventPool) put(e cu.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, e)
}

// close destroys the events of the pool; the others end with the context.
func (p *eventPool) close() error {
	var all error
	for e, ok := p.pop(); ok; e, ok = p.pop() {
		all = errors.Join(all, cu.DestroyEvent(&e))
	}
	return all
}
