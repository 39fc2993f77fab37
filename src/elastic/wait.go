package elastic

import (
	"fmt"
	"os"
	"time"

	"dynmo/src/comm"
	"dynmo/src/fault"
)

// orderEvery is the time between two looks for an order: so long that looking takes next to
// nothing of a core, and short beside what follows.
const orderEvery = 20 * time.Millisecond

// Await waits for the order of rank 0, on a rank without layers, and confirms the order. steps is
// the number of steps after which the rank lost its last layer. All its groups but base are closed.
// stop and save report requests to this process, which Await passes on to rank 0. reached is
// called in every phase. The error is that rank 0 or the launcher has ended. Await sleeps between
// its looks.
func Await(base *comm.Group, steps int, stop, save func() bool, reached func(fault.Phase)) (Order, error) {
	w := waiter{base: base, parent: os.Getppid()}
	var err error
	if w.line, err = newLine(base, 0, comm.TagOrder, comm.TagWord); err != nil {
		return 0, fmt.Errorf("wait for an order: %w", err)
	}
	base.Post().Park(steps - 1)
	reached(fault.Parked)
	order, err := w.wait(stop, save)
	if order == orderGo {
		reached(fault.Goodbye)
	}
	if err == nil {
		base.Post().Leave()
		err = w.tell(wordBye)
	}
	if err != nil {
		return 0, fmt.Errorf("wait for an order: %w", err)
	}
	w.line.close()
	return order, nil
}

// waiter is a rank without layers.
type waiter struct {
	base   *comm.Group
	line   *line
	parent int // process that launched this one
}

// wait returns the order.
func (w *waiter) wait(stop, save func() bool) (Order, error) {
	for stopped := false; ; {
		word, err := w.line.hear()
		if word != 0 || err != nil {
			return Order(word), err
		}
		if save() {
			if err := w.tell(wordSave); err != nil {
				return 0, err
			}
		}
		if !stopped && stop() {
			if err := w.tell(wordStop); err != nil {
				return 0, err
			}
			stopped = true
		}
		if err := w.pause(); err != nil {
			return 0, err
		}
	}
}

// tell sends a word, and waits until it is sent.
func (w *waiter) tell(word byte) error {
	if err := w.line.say(word); err != nil {
		return err
	}
	for {
		if done, err := w.line.sent.Test(); done || err != nil {
			return err
		}
		if err := w.pause(); err != nil {
			return err
		}
	}
}

// pause sleeps, and returns an error if no order can come any more.
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
