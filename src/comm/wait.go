package comm

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone is wrapped by the error of a wait that ended because a rank of the group no longer runs.
// ErrNoAnswer is wrapped by the error of a wait that took too long.
var (
	ErrGone     = errors.New("gone")
	ErrNoAnswer = errors.New("no answer")
)

// GoneError is the error of a rank that no longer runs; it wraps ErrGone.
type GoneError struct {
	Peer Peer
	text string
}

func (e *GoneError) Error() string { return e.text }

// gonePeer returns the error of a rank that was seen to run no longer.
func gonePeer(p Peer) *GoneError { return &GoneError{p, fmt.Sprintf("%v is %v", p, ErrGone)} }

// Unwrap returns ErrGone.
func (e *GoneError) Unwrap() error { return ErrGone }

const (
	// spinFor is how long a wait polls at first: a few times the latency of a small message. A
	// quarter of the time that the message may travel is added. Then ping-pong never yields,
	// whatever the length.
	spinFor = 20 * time.Microsecond
	// slowest is a low estimate of the bytes per second at which a message travels while both
	// ranks drive it. Shared memory and fast networks are several times as fast.
	slowest = 1e9
	// yieldFor is how long a wait then polls and yields its core from time to time: ten times as
	// long as the system needs to start a sleeping thread. The time that the message may travel is
	// added.
	yieldFor = 500 * time.Microsecond
	// burstFor is how long a wait polls between two yields: so long that yields do not slow a large
	// message.
	burstFor = 100 * time.Microsecond
	// crowdedFrom is how long other threads must have used the core before the wait sleeps between
	// its polls, to leave the core to them. The system's own work takes far less.
	crowdedFrom = 50 * time.Microsecond
	// longestNap bounds the sleep between later polls. Two dozen ranks that
	// wait on two cores then poll with a few per cent of a core each.
	longestNap = 100 * time.Microsecond
	// watchInterrupted replaces WatchEvery in waits once this process was asked to end: mpirun kills
	// about a second after it asks.
	watchInterrupted = 10 * time.Millisecond
)

// Wait drives the message until it is done. Every WatchEvery it looks whether the group's ranks on
// this host still run. If a rank does not, Wait returns an error that wraps ErrGone. Wait returns an
// error that wraps ErrNoAnswer once this process has run for Options.Deadline (see RunTime). For a
// peer on this host that still runs, the longer of Options.Deadline and Options.Patience counts: a
// live peer is most likely busy. After ErrNoAnswer the message is still under way, and Wait may be
// called again.
func (q Request) Wait() error {
	_, err := q.Received()
	return err
}

// Received waits as Wait does and returns the number of received bytes. It returns 0 for a send, and
// if an earlier Wait or Received of the same message has succeeded.
func (q Request) Received() (int64, error) {
	r := q.m
	if r == nil || r.number != q.number {
		return 0, nil
	}
	clock := r.g.o.Clock
	clock.Pause()
	defer clock.Resume()
	if err := r.await(); err != nil {
		return 0, err
	}
	if r.reaches {
		clock.Reach(r.stamp)
	}
	r.recycle()
	return r.received, nil
}

// waiting is a message or a round for which a rank waits.
type waiting interface {
	// test drives the message or round for as long as a Handle's Test does.
	test(spin time.Duration) (bool, error)
	// handle returns the first transfer that is not done.
	handle() Handle
	// explain adds to an error which message or round it belongs to.
	explain(err error) error
}

// wait drives a message or a round until it is done, or gives up. peer is a rank of it, and bytes the
// length of the message.
func (g *Group) wait(what waiting, peer int, bytes int64) error {
	if done, err := what.test(0); done {
		return err
	}
	travel := time.Duration(float64(bytes) / slowest * 1e9)
	p := pause{yield: yieldFor + travel}
	if _, ok := what.handle().(Sleeper); !ok {
		if done, err := what.test(spinFor + travel/4); done {
			return err
		}
		p.used = threadTime()
	}
	post := g.o.post
	post.wait(g.peers[peer].World)
	defer post.wait(-1)
	start := time.Now()
	var ran RunTime
	var looked time.Duration // when the wait last looked for the dead
	for {
		now := time.Now()
		waited := now.Sub(start)
		for _, d := range g.o.devices { // the peer may need a message of device memory first
			if err := d.driveDevice(); err != nil {
				return what.explain(err)
			}
		}
		if done, err := what.test(p.pass(what.handle(), waited)); done {
			return err
		}
		if waited-looked >= g.watchPeriod() {
			looked = waited
			if err := g.lookAround(peer, waited); err != nil {
				return what.explain(err)
			}
		}
		if limit := g.limit(peer); ran.At(now) >= limit {
			return what.explain(fmt.Errorf("%w in %v", ErrNoAnswer, limit))
		}
	}
}

// lookAround looks for dead ranks in the group, then in all groups that send device memory. The peer
// may itself wait for a rank of such a group.
func (g *Group) lookAround(peer int, waited time.Duration) error {
	if err := g.look(peer, waited); err != nil {
		return err
	}
	for _, d := range g.o.devices {
		if err := d.look(d.rank, waited); err != nil {
			return err
		}
	}
	return nil
}

// pause is how a wait passes the time between two polls.
type pause struct {
	yield   time.Duration // how long the wait yields without sleeping
	used    time.Duration // CPU time of the thread when the wait began
	crowded bool          // others need the core
}

// pass sleeps or yields, and returns how long to poll afterwards. waited is how long the wait has
// lasted already.
func (p *pause) pass(h Handle, waited time.Duration) (spin time.Duration) {
	if s, ok := h.(Sleeper); ok {
		s.Sleep(watchInterrupted)
		return 0
	}
	p.crowded = p.crowded || waited-(threadTime()-p.used) > crowdedFrom
	if p.crowded && waited > p.yield {
		nap := unix.NsecToTimespec(int64(min(waited/16, longestNap)))
		_ = unix.Nanosleep(&nap, nil) // a signal may end it early: then the poll is early
		return 0
	}
	// The Go scheduler's own yield would not give the core to other processes.
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	return burstFor
}

// threadTime returns the CPU time that the calling thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // every Linux has it
	return time.Duration(t.Nano())
}

// watchPeriod returns the time between a wait's looks for dead ranks.
func (g *Group) watchPeriod() time.Duration {
	if g.o.Interrupted != nil && g.o.Interrupted() {
		return watchInterrupted
	}
	return WatchEvery
}

// look returns an error if the peer no longer runs, or else if any other watched rank of the group no
// longer runs: the peer may itself wait for that rank.
func (g *Group) look(peer int, waited time.Duration) error {
	var other error
	for rank, watched := range g.watched {
		if !watched || alive(g.peers[rank].PID) {
			continue
		}
		text := fmt.Sprintf("%v (noticed after %v)", ErrGone, waited.Round(time.Millisecond))
		if rank == peer {
			return &GoneError{g.peers[rank], text}
		}
		if other == nil {
			other = &GoneError{g.peers[rank], fmt.Sprintf("%v is %s", g.peers[rank], text)}
		}
	}
	return other
}

// blameFor is how long the system may take, after a process's connections are closed, to show that
// the process has ended.
const blameFor = 100 * time.Millisecond

// blame returns the error err of a transport. If a rank no longer runs, it adds a GoneError: NCCL and
// MPI know only that a connection has closed.
func (g *Group) blame(peer int, err error) error {
	for start := time.Now(); ; time.Sleep(blameFor / 20) {
		waited := time.Since(start)
		if gone := g.look(peer, waited); gone != nil {
			return fmt.Errorf("%w: %w", gone, err)
		}
		if waited >= blameFor {
			return err
		}
	}
}

// limit returns how long a wait for the peer may last.
func (g *Group) limit(peer int) time.Duration {
	if g.watched[peer] {
		return max(g.o.Deadline, g.o.Patience)
	}
	return g.o.Deadline
}
