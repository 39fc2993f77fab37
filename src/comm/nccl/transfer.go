//go:build cgo

package nccl

import (
	"time"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// transfer is one side of a message: a comm.Handle. It belongs to its channel,
// which uses it again once it is done.
type transfer struct {
	channel  *channel
	sends    bool
	tag      int
	mem      tensor.Mem
	upTo     bool         // receive: a shorter message will do
	waits    bool         // for start
	start    device.Event // of the transport's gate, behind the event that the transfer waits for
	event    device.Event // of the channel's stream, behind the operation once enqueued
	enqueued bool
}

// Test drives all channels, once or until spin has passed. A send is done when its
// event has happened; a receive is done once it is enqueued: the compute stream
// waits for its event, the host does not.
func (t *transfer) Test(spin time.Duration) (bool, comm.Arrival, error) {
	d := t.channel.d
	for start := time.Now(); ; {
		if err := d.Drive(); err != nil {
			return true, comm.Arrival{}, err
		}
		done, err := t.done()
		if err != nil {
			err = d.fail(t.channel.explain(err))
			return true, comm.Arrival{}, err
		}
		if done {
			t.channel.idle = append(t.channel.idle, t)
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
	t.channel.d.compute.After(t.event)
	return true, nil
}
