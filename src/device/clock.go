package device

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock counts seconds since the start of a run. A wall clock reads real time
// and ignores Pause, Resume, Advance and Reach. A virtual clock adds up the CPU time of the calling
// thread. It stands still between Pause and Resume, moves by Advance, and jumps to the arrival time
// of a message by Reach. Its owner must be locked to its OS thread. A known clock is a virtual
// clock that ignores CPU time.
type Clock struct {
	virtual bool
	known   bool
	zero    int64         // wall: the host's monotonic clock when the run began, nanoseconds
	now     float64       // virtual: seconds at the last reading
	cpu     time.Duration // virtual: thread CPU time at the last reading
	paused  int           // virtual: depth of Pause
}

// NewWall returns a wall clock that starts at 0.
func NewWall() *Clock { return &Clock{zero: Monotonic()} }

// NewVirtual returns a virtual clock that starts at 0. The calling goroutine
// must be locked to its OS thread and stay the only user.
func NewVirtual() *Clock { return &Clock{virtual: true, cpu: threadCPU()} }

// NewKnown returns a virtual clock that starts at 0 and counts only the known seconds of work,
// added by Advance. Any goroutine may use it, one at a time.
func NewKnown() *Clock { return &Clock{virtual: true, known: true} }

// Kind returns "wall" or "virtual".
func (c *Clock) Kind() string {
	if c.virtual {
		return "virtual"
	}
	return "wall"
}

// At returns the time of a wall clock at a value of the host's monotonic clock.
func (c *Clock) At(monotonic int64) float64 { return float64(monotonic-c.zero) / 1e9 }

// Now returns the seconds since the start.
func (c *Clock) Now() float64 {
	if !c.virtual {
		return c.At(Monotonic())
	}
	if c.paused == 0 && !c.known {
		cpu := threadCPU()
		c.now += (cpu - c.cpu).Seconds()
		c.cpu = cpu
	}
	return c.now
}

// Pause stops a virtual clock: CPU time until the matching Resume does not count. Communication
// pauses the clock, since polling is no work.
func (c *Clock) Pause() {
	if !c.virtual {
		return
	}
	c.Now()
	c.paused++
}

// Resume ends a Pause.
func (c *Clock) Resume() {
	if !c.virtual {
		return
	}
	if c.paused--; c.paused == 0 && !c.known {
		c.cpu = threadCPU()
	}
}

// Advance adds the seconds of work that is not executed, but whose time is known, to a virtual
// clock.
func (c *Clock) Advance(seconds float64) {
	if c.virtual {
		c.Now()
		c.now += seconds
	}
}

// Reach moves a virtual clock forward to t, if t is later: the rank has waited for something that
// arrives at t.
func (c *Clock) Reach(t float64) {
	if c.virtual && t > c.Now() {
		c.now = t
	}
}

// Zero sets the value of Monotonic at which a wall clock reads 0, so that the clocks of a host's
// ranks agree. Virtual clocks ignore it; they agree by messages.
func (c *Clock) Zero(monotonic int64) { c.zero = monotonic }

// Monotonic returns the host's monotonic clock in nanoseconds. All processes of a host share this
// clock; values of other hosts are not comparable.
func Monotonic() int64 { return int64(read(unix.CLOCK_MONOTONIC)) }

// threadCPU returns the CPU time of the calling thread.
func threadCPU() time.Duration { return read(unix.CLOCK_THREAD_CPUTIME_ID) }

// read returns the time of a system clock. It fails only on a system without that clock, and Go
// runs on no such system.
func read(clock int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		panic("device: a clock is missing")
	}
	return time.Duration(ts.Nano())
}
