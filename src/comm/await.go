package comm

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
)

// pollEvery is the time between two looks at an event: what a step may lose at
// its end.
const pollEvery = 20 * time.Microsecond

// Await blocks the host until the event has happened. A device that waits for the
// message of a rank that is gone never gets there, so Await looks for the dead as
// Request.Wait does, and gives up as it does.
func (g *Group) Await(e device.Event) error {
	g.o.Clock.Pause()
	defer g.o.Clock.Resume()
	start := time.Now()
	var looked time.Duration
	for {
		if done, err := e.Done(); done || err != nil {
			return err
		}
		nap := unix.NsecToTimespec(int64(pollEvery))
		_ = unix.Nanosleep(&nap, nil) // a signal may end it early: then the look is early
		waited := time.Since(start)
		if waited-looked < g.watchPeriod() {
			continue
		}
		looked = waited
		if err := g.look(g.rank, waited); err != nil {
			return fmt.Errorf("wait for the device: %w", err)
		}
		if limit := max(g.o.Deadline, g.o.Patience); waited >= limit {
			return fmt.Errorf("wait for the device: %w in %v", ErrNoAnswer, limit)
		}
	}
}
