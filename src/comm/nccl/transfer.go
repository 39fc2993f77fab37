//go:build cgo

package nccl

import (
	"fmt"
	"slices"
	"time"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// transfer is one side of a message of a chain: a comm.Handle. The chain uses it again
// once it is done.
type transfer struct {
	m        *messages
	peer     int
	sends    bool
	tag      int
	mem      tensor.Mem
	upTo     bool   // receive: a shorter message will do
	room     notice // send: what the receiver has room for
	start    moment
	event    device.Event // of the domain's stream, behind the operation once enqueued
	enqueued bool
}

// Test drives all messages of the chain, once or until spin has passed. A send is done
// when its event has happened; a receive is done once it is enqueued: the compute stream
// waits for its event, the host does not.
func (t *transfer) Test(spin time.Duration) (bool, comm.Arrival, error) {
	for start := time.Now(); ; {
		if err := t.m.Drive(); err != nil {
			return true, comm.Arrival{}, err
		}
		done, err := t.done()
		if err != nil {
			return true, comm.Arrival{}, t.m.fail(t.explain(err))
		}
		if done {
			t.m.spare = append(t.m.spare, t)
			return true, comm.Arrival{Bytes: t.mem.Bytes}, nil
		}
		if time.Since(start) >= spin {
			return false, comm.Arrival{}, nil
		}
	}
}

func (t *transfer) done() (bool, error) {
	switch {
	case !t.enqueued:
		return false, nil
	case t.mem.Bytes == 0: // nothing was enqueued
		return true, nil
	case t.sends:
		return t.event.Done()
	}
	t.m.compute.After(t.event)
	return true, nil
}

// explain adds to an error which message it belongs to.
func (t *transfer) explain(err error) error {
	way := "from"
	if t.sends {
		way = "to"
	}
	return fmt.Errorf("%s %s: %w", way, t.m.control.who(t.peer), err)
}

// notice describes the message.
func (t *transfer) notice() notice { return notice{t.tag, t.mem.Bytes, t.upTo, true} }

// first removes and returns the oldest transfer with a tag, or nil.
func first(list *[]*transfer, tag int) *transfer {
	i := slices.IndexFunc(*list, func(t *transfer) bool { return t.tag == tag })
	if i < 0 {
		return nil
	}
	t := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return t
}

// pop removes and returns the oldest, or nil.
func pop(list *[]*transfer) *transfer {
	if len(*list) == 0 {
		return nil
	}
	t := (*list)[0]
	*list = slices.Delete(*list, 0, 1)
	return t
}

// fit makes a transfer's memory as long as the message that is sent. It is an error
// if a receive wants another length, or has no room for it.
func fit(recv *transfer, sent int64) error {
	if err := mismatch(recv.tag, sent, recv.mem.Bytes, recv.upTo); err != nil {
		return err
	}
	recv.mem = recv.mem.Span(0, sent)
	return nil
}

// mismatch is the error of a message that does not fit its receive, nil if it does.
func mismatch(tag int, sent, expected int64, upTo bool) error {
	if sent == expected || upTo && sent < expected {
		return nil
	}
	return fmt.Errorf("a message with tag %d has %d bytes, but %d are expected", tag, sent, expected)
}
