package comm

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone is wrapped by the error of a wait that ends because a rank of the
// group no longer runs; ErrNoAnswer by that of a wait that took too long.
var (
	ErrGone     = errors.New("gone")
	ErrNoAnswer = errors.New("no answer")
)

const (
	// spinFor is how long a wait polls at full speed: a few times the latency
	// of a small message, so that ping-pong never sleeps.
	spinFor = 20 * time.Microsecond
	// yieldFor is how long it then polls between offers of its core to others:
	// about as long as it takes the system to start a sleeping thread ten times.
	yieldFor = 500 * time.Microsecond
	// longestNap bounds the sleep between later polls. Two dozen ranks that
	// wait on two cores then poll with a few per cent of a core each.
	longestNap = 100 * time.Microsecond
	// watchEvery is how often a wait looks whether the ranks of this host live.
	watchEvery = 200 * time.Millisecond
	// watchInterrupted is the same once this process was asked to end: mpirun
	// kills about a second after it asks.
	watchInterrupted = 10 * time.Millisecond
)

// Wait drives the transfer until it is done. Meanwhile it looks every 200 ms
// whether the group's ranks on this host still run, and ends with ErrGone if
// one does not. It ends with ErrNoAnswer after Options.Deadline, or, where the
// peer is seen alive, after Options.Patience if that is longer: such a peer
// computes or hangs, and the first is far more common. After ErrNoAnswer the
// transfer is still under way, and Wait may be called again.
func (r *Request) Wait() error {
	clock := r.g.o.Clock
	clock.Pause()
	defer clock.Resume()
	if err := r.complete(); err != nil {
		return err
	}
	if r.arrives {
		clock.Reach(r.stamp + r.g.o.Network.Seconds(r.bytes))
	}
	return nil
}

// complete drives the transfer until it is done or given up.
func (r *Request) complete() error {
	if done, err := r.Test(); done {
		return err
	}
	start := time.Now()
	var looked time.Duration // when the wait last looked for the dead
	for {
		waited := time.Since(start)
		r.idle(waited)
		if done, err := r.Test(); done {
			return err
		}
		if waited-looked >= r.g.watchPeriod() {
			looked = waited
			if err := r.g.look(r.peer, waited); err != nil {
				return r.explain(err)
			}
		}
		if limit := r.g.limit(r.peer); waited >= limit {
			return r.explain(fmt.Errorf("%w in %v", ErrNoAnswer, limit))
		}
	}
}

// idle passes the time between two polls of a wait that has lasted waited.
func (r *Request) idle(waited time.Duration) {
	if waited < spinFor {
		return
	}
	if s, ok := r.handles[0].(Sleeper); ok {
		s.Sleep(watchInterrupted)
		return
	}
	if waited < yieldFor {
		// The Go scheduler's own yield would not give the core to other processes.
		unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		return
	}
	nap := unix.NsecToTimespec(int64(min(waited/16, longestNap)))
	_ = unix.Nanosleep(&nap, nil) // a signal may end it early: then the poll is early
}

// watchPeriod returns how long a wait goes on between two looks for the dead.
func (g *Group) watchPeriod() time.Duration {
	if g.o.Interrupted != nil && g.o.Interrupted() {
		return watchInterrupted
	}
	return watchEvery
}

// look returns an error if a watched rank no longer runs: the peer first, then
// any other rank of the group, since the peer may itself be waiting for it.
func (g *Group) look(peer int, waited time.Duration) error {
	var other error
	for rank, watched := range g.watched {
		if !watched || alive(g.peers[rank].PID) {
			continue
		}
		if rank == peer {
			return fmt.Errorf("%w (noticed after %v)", ErrGone, waited.Round(time.Millisecond))
		}
		if other == nil {
			other = fmt.Errorf("%s is %w (noticed after %v)", g.name(rank), ErrGone, waited.Round(time.Millisecond))
		}
	}
	return other
}

// limit returns how long a wait for the peer may last.
func (g *Group) limit(peer int) time.Duration {
	if g.watched[peer] {
		return max(g.o.Deadline, g.o.Patience)
	}
	return g.o.Deadline
}
