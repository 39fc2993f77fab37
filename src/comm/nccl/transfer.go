//go:build cgo

package nccl

import (
	"time"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/tensor"
)

// transfer is one side of a message: a comm.Handle. It belongs to its lane,
// which uses it again once it is done.
type transfer struct {
	lane     *lane
	sends    bool
	tag      int
	mem      tensor.Mem
	upTo     bool         // receive: a shorter message will do
	waits    bool         // for start
	start    device.Event // of the carrier's gate, behind what the transfer has to wait for
	event    device.Event // of the lane's stream, behind the operation once enqueued
	enqueued bool
}

// Test drives all lanes, once or until spin has passed. A send is done when its
// event has happened; a receive when the compute stream waits for its event,
// which is now: the host does not.
func (t *transfer) Test(spin time.Duration) (bool, comm.Arrival, error) {
	c := t.lane.c
	for start := time.Now(); ; {
		if err := c.Drive(); err != nil {
			return true, comm.Arrival{}, err
		}
		done, err := t.done()
		if err != nil {
			err = c.fail(t.lane.explain(err))
			return true, comm.Arrival{}, err
		}
		if done {
			t.lane.idle = append(t.lane.idle, t)
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
	t.lane.c.compute.After(t.event)
	return true, nil
}
