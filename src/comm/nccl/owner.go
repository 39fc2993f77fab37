//go:build cgo

package nccl

import (
	"runtime"
	"sync/atomic"
	"time"

	"dynmo/src/device"
)

// owner makes all calls of NCCL for one communicator, on one thread, until the communicator is
// freed. Up to version 2.26 NCCL keeps the state of a group in the thread that began the group.
// A helper thread works on that state through pointers (ncclGroupJobMain, src/group.cc). So two
// communicators of one thread destroy each other's groups. An abort from another thread would
// free the state under the helper thread. The communicator does not block, so that its owner can
// abort it at any time.
type owner struct {
	calls  chan call
	busy   atomic.Bool           // a call is under way; set by the rank, cleared by the owner
	failed atomic.Pointer[error] // of a call, or of a message that was under way
	stop   atomic.Bool           // the rank wants an abort
	stops  chan struct{}         // closed with stop
	ended  chan struct{}         // closed once the communicator is freed or aborted
}

// call begins something on the communicator. It returns the part that was split off, if
// any: the call is done once both are ready.
type call func(k *communicator) (part communicator, err error)

// newOwner starts the thread of a communicator: k, or one that the first call begins.
func newOwner(d device.Device, k communicator) *owner {
	o := &owner{calls: make(chan call, 1), stops: make(chan struct{}), ended: make(chan struct{})}
	go o.serve(d, k)
	return o
}

const (
	// patience is how long an owner asks NCCL without a pause: a group is on the stream
	// after some tens of microseconds, unless it makes connections.
	patience = 200 * time.Microsecond
	// poll is the time between two questions to NCCL where a delay costs little.
	poll = 100 * time.Microsecond
	// watch is how often an owner without a call asks whether a message has failed.
	watch = 50 * time.Millisecond
)

// serve makes calls until the communicator is freed or aborted.
func (o *owner) serve(d device.Device, k communicator) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	defer close(o.ended)
	if err := d.Attach(); err != nil {
		o.fail(err)
	}
	tick := time.NewTicker(watch)
	defer tick.Stop()
	for {
		select {
		case <-o.stops:
			if k.begun() {
				_ = k.abort() // nothing else can be done about an error
			}
			return
		case c := <-o.calls:
			if o.failed.Load() == nil {
				if err := o.make(c, &k); err != nil {
					o.fail(err)
				}
			}
			o.busy.Store(false)
			if !k.begun() && o.failed.Load() == nil {
				return // the call has freed it
			}
		case <-tick.C:
			if k.begun() && o.failed.Load() == nil {
				if _, err := k.ready(); err != nil {
					o.fail(err)
				}
			}
		}
	}
}

// make makes a call and waits until it is done, or until an abort is wanted.
func (o *owner) make(c call, k *communicator) error {
	part, err := c(k)
	if err != nil {
		return err
	}
	for _, each := range []communicator{*k, part} {
		for begun := time.Now(); each.begun(); {
			ready, err := each.ready()
			if err != nil {
				return err
			}
			if ready {
				break
			}
			if o.stop.Load() {
				return errAborted
			}
			if time.Since(begun) > patience {
				time.Sleep(poll)
			}
		}
	}
	return nil
}

func (o *owner) fail(err error) { o.failed.CompareAndSwap(nil, &err) }

// begin hands over a call. The owner is idle.
func (o *owner) begin(c call) {
	o.busy.Store(true)
	o.calls <- c
}

// idle reports whether no call is under way. The error is the first of the communicator.
func (o *owner) idle() (bool, error) {
	if o.busy.Load() {
		return false, nil
	}
	if err := o.failed.Load(); err != nil {
		return false, *err
	}
	return true, nil
}

// abort asks the owner to give up the call under way and to free the communicator.
func (o *owner) abort() {
	if o.stop.CompareAndSwap(false, true) {
		close(o.stops)
	}
}
