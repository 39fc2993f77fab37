package comm

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
)

// pollEvery is the time between two looks at an event. A step may end later by this time.
const pollEvery = 20 * time.Microsecond

// Await blocks the host until the event e has happened. Meanwhile it drives the messages of device
// memory of all groups that come from the same New. The event may wait for a message of a rank that
// no longer runs, and then never happens. So Await looks for dead ranks in the given groups, and
// gives up, as Request.Wait does. The caller gives at least one group.
func Await(e device.Event, groups ...*Group) error {
	return poll(e.Done, groups, 0)
}

// poll blocks the host until done returns true. It gives up after limit; 0 means as long as any peer
// may keep this rank waiting. See Await.
func poll(done func() (bool, error), groups []*Group, limit time.Duration) error {
	clock := groups[0].o.Clock
	clock.Pause()
	defer clock.Resume()
	start := time.Now()
	var ran RunTime
	var looked time.Duration
	for {
		if done, err := done(); done || err != nil {
			return err
		}
		for _, g := range groups[0].o.devices {
			if err := g.driveDevice(); err != nil {
				return fmt.Errorf("wait for the device: %w", err)
			}
		}
		nap := unix.NsecToTimespec(int64(pollEvery))
		_ = unix.Nanosleep(&nap, nil) // a signal may end it early: then the look is early
		now := time.Now()
		waited, ran := now.Sub(start), ran.At(now)
		if waited-looked < groups[0].watchPeriod() {
			continue
		}
		looked = waited
		for _, g := range groups {
			if err := g.look(g.rank, waited); err != nil {
				return fmt.Errorf("wait for the device: %w", err)
			}
		}
		longest := limit
		for _, g := range groups {
			if limit == 0 {
				longest = max(longest, g.longest())
			}
		}
		if ran >= longest {
			return fmt.Errorf("wait for the device: %w in %v", ErrNoAnswer, longest)
		}
	}
}

// driveDevice drives the messages of device memory, if there can be any.
func (g *Group) driveDevice() error {
	if g.device == nil {
		return nil
	}
	if err := g.device.Drive(); err != nil {
		return g.blame(g.rank, err)
	}
	return nil
}

// longest returns how long any peer may keep this rank waiting.
func (g *Group) longest() time.Duration {
	limit := g.o.Deadline
	for peer := range g.peers {
		if peer != g.rank {
			limit = max(limit, g.limit(peer))
		}
	}
	if g.size == 1 { // no peer, only work of the device
		limit = max(limit, g.o.Patience)
	}
	return limit
}
