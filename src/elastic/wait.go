package elastic

import (
	"fmt"
	"os"
	"time"

	"dynmo/src/comm"
	"dynmo/src/fault"
)

// orderEvery is the time between two looks for an order. Looking then takes little time of a core, and
// the delay is short compared with the end of a process.
const orderEvery = 20 * time.Millisecond

// Await waits, on a rank without layers, until rank 0 gives its order. It confirms the order and
// returns it. A returned order is the normal end. base is the launched world; all other groups of the
// rank are closed. steps is the number of steps after which the rank lost its last layer.
//
// stop and save report whether this process was asked to end the run or to write a checkpoint. Await
// passes such requests on to rank 0. Await calls reached, which must not be nil, when it begins to
// wait (fault.Parked) and before it confirms an order to leave early (fault.Goodbye).
//
// Await returns an error that wraps comm.ErrGone if rank 0 (on this host) or the launcher has ended.
// It sleeps between its looks, so a waiting rank takes little time of a core.
func Await(base *comm.Group, steps int, stop, save func() bool, reached func(fault.Phase)) (Order, error) {
	w := waiter{base: base, parent: os.Getppid()}
	var err error
	if w.channel, err = openChannel(base, 0, comm.TagOrder, comm.TagWord); err != nil {
		return 0, fmt.Errorf("wait for an order: %w", err)
	}
	base.Post().Park(steps - 1)
	reached(fault.Parked)
	order, err := w.wait(stop, save)
	if order == orderLeave {
		reached(fault.Goodbye)
	}
	if err == nil {
		base.Post().Leave()
		err = w.send(messageGoodbye)
	}
	if err != nil {
		return 0, fmt.Errorf("wait for an order: %w", err)
	}
	w.channel.close()
	return order, nil
}

// waiter is a rank without layers.
type waiter struct {
	base    *comm.Group
	channel *controlChannel // to rank 0
	parent  int             // process id of the launcher
}

// wait waits for the order of rank 0, and returns it. Meanwhile it passes requests on to rank 0.
func (w *waiter) wait(stop, save func() bool) (Order, error) {
	for stopped := false; ; {
		order, err := w.channel.poll()
		if order != 0 || err != nil {
			return Order(order), err
		}
		if save() {
			if err := w.send(messageSave); err != nil {
				return 0, err
			}
		}
		if !stopped && stop() {
			if err := w.send(messageStop); err != nil {
				return 0, err
			}
			stopped = true
		}
		if err := w.pause(); err != nil {
			return 0, err
		}
	}
}

// send sends a message to rank 0, and waits until the message is sent.
func (w *waiter) send(message byte) error {
	if err := w.channel.startSend(message); err != nil {
		return err
	}
	for {
		if done, err := w.channel.sent.Test(); done || err != nil {
			return err
		}
		if err := w.pause(); err != nil {
			return err
		}
	}
}

// pause sleeps, and returns an error if rank 0 or the launcher has ended: no order can come then.
func (w *waiter) pause() error {
	time.Sleep(orderEvery)
	if err := w.base.Gone(0); err != nil {
		return err
	}
	if os.Getppid() != w.parent {
		return fmt.Errorf("the launcher (pid %d) is %w", w.parent, comm.ErrGone)
	}
	return nil
}
