package device

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock tells seconds since the start of a run. A wall clock reads real time
// and ignores Pause, Resume, Advance and Reach. A virtual clock adds up the
// CPU time of the calling thread: it stands still between Pause and Resume,
// moves when told to by Advance, and jumps to the arrival time of a message
// by Reach. Its owner must be locked to its OS thread.
type Clock struct {
	virtual bool
	zero    time.Time     // wall: when the run began
	now     float64       // virtual: seconds at the last reading
	cpu     time.Duration // virtual: thread CPU time at the last reading
	paused  int           // virtual: depth of Pause
}

// NewWall returns a wall clock that reads 0 now.
func NewWall() *Clock { return &Clock{zero: time.Now()} }

// NewVirtual returns a virtual clock that reads 0 now. The calling goroutine
// must be locked to its OS thread and stay the only user.
func NewVirtual() *Clock { return &Clock{virtual: true, cpu: threadCPU()} }

// Kind returns "wall" or "virtual".
func (c *Clock) Kind() string {
	if c.virtual {
		return "virtual"
	}
	return "wall"
}

// Now returns the seconds since the start.
func (c *Clock) Now() float64 {
	if !c.virtual {
		return time.Since(c.zero).Seconds()
	}
	if c.paused == 0 {
		cpu := threadCPU()
		c.now += (cpu - c.cpu).Seconds()
		c.cpu = cpu
	}
	return c.now
}

// Pause stops a virtual clock: CPU time until the matching Resume does not
// count. Communication pauses it, since polling is no work.
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
	if c.paused--; c.paused == 0 {
		c.cpu = threadCPU()
	}
}

// Advance adds seconds to a virtual clock: work that is known, not done.
func (c *Clock) Advance(seconds float64) {
	if c.virtual {
		c.Now()
		c.now += seconds
	}
}

// Reach moves a virtual clock forward to t, if t is later: something that
// arrives at t was waited for.
func (c *Clock) Reach(t float64) {
	if c.virtual && t > c.Now() {
		c.now = t
	}
}

// Reset makes the clock read 0 now.
func (c *Clock) Reset() {
	c.zero, c.now = time.Now(), 0
	if c.virtual {
		c.cpu = threadCPU()
	}
}

// threadCPU returns the CPU time of the calling thread. Only a kernel without
// the clock could fail, and there is none that Go runs on.
func threadCPU() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic("device: no thread CPU clock")
	}
	return time.Duration(ts.Nano())
}
