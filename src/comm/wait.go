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
	// spinFor is how long a wait polls at first, besides a quarter of the time
	// that its message may travel: a few times the latency of a small message.
	// Ping-pong then never yields, whatever the length.
	spinFor = 20 * time.Microsecond
	// slowest is the least bytes per second of a message that both ranks drive:
	// shared memory and fast networks have several times as much.
	slowest = 1e9
	// yieldFor is how long a wait polls and offers its core to others from time to
	// time, besides the time that its message may travel: as long as the system
	// needs to start a sleeping thread ten times.
	yieldFor = 500 * time.Microsecond
	// burstFor is how long a wait polls between such offers: so long that their
	// cost does not slow a large message.
	burstFor = 100 * time.Microsecond
	// crowdedFrom is how long others use the core of a wait before the wait sleeps
	// between its polls, to leave it to them: far longer than the system's own work
	// in between.
	crowdedFrom = 50 * time.Microsecond
	// longestNap bounds the sleep between later polls. Two dozen ranks that
	// wait on two cores then poll with a few per cent of a core each.
	longestNap = 100 * time.Microsecond
	// watchEvery is how often a wait looks whether the ranks of this host live.
	watchEvery = 200 * time.Millisecond
	// watchInterrupted is the same once this process was asked to end: mpirun
	// kills about a second after it asks.
	watchInterrupted = 10 * time.Millisecond
)

// Wait drives the message until it is done. Meanwhile it looks every 200 ms
// whether the group's ranks on this host still run, and ends with ErrGone if
// one does not. It ends with ErrNoAnswer after Options.Deadline, or, where the
// peer is seen alive, after Options.Patience if that is longer: such a peer
// computes or hangs, and the first is far more common. After ErrNoAnswer the
// message is still under way, and Wait may be called again.
func (q Request) Wait() error {
	_, err := q.Received()
	return err
}

// Received waits as Wait does and returns how many bytes were received. Only the
// first Wait or Received that succeeds knows: later ones return 0, and so does a send.
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

// waiting is what a wait waits for.
type waiting interface {
	// test drives it for as long as a Handle's Test does.
	test(spin time.Duration) (bool, error)
	// handle returns what is not done of it.
	handle() Handle
	// explain adds to an error which wait it was.
	explain(err error) error
}

// wait drives something of some bytes, which comes from a rank among others, until it is
// done, or gives up.
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
	var looked time.Duration // when the wait last looked for the dead
	for {
		waited := time.Since(start)
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
		if limit := g.limit(peer); waited >= limit {
			return what.explain(fmt.Errorf("%w in %v", ErrNoAnswer, limit))
		}
	}
}

// lookAround looks for the dead in the group, then in those that send device memory: the
// peer may wait for a rank of these.
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
	yield   time.Duration // how long the wait only yields
	used    time.Duration // CPU time of the thread when the wait began
	crowded bool          // others need the core
}

// pass lets some time of a wait pass that has lasted waited already, and returns
// how long to poll afterwards.
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

// blameFor is how long the system may take to show that a process has ended whose
// connections are closed already.
const blameFor = 100 * time.Millisecond

// blame returns an error of a transport, and that a rank is gone if one is: NCCL
// and MPI only know that a connection has closed.
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
