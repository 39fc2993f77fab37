package device

import (
	"math"
	"runtime"
	"testing"
	"time"
)

// spin uses the CPU of the calling thread for about d.
func spin(d time.Duration) {
	for begin := threadCPU(); threadCPU()-begin < d; {
	}
}

func TestVirtualClockCountsOwnWorkOnly(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := NewVirtual()
	time.Sleep(20 * time.Millisecond)
	if now := c.Now(); now > 0.01 {
		t.Errorf("sleeping moved the clock to %v", now)
	}
	c.Pause()
	spin(20 * time.Millisecond)
	if now := c.Now(); now > 0.01 {
		t.Errorf("paused work moved the clock to %v", now)
	}
	c.Resume()
	spin(20 * time.Millisecond)
	if now := c.Now(); now < 0.02 || now > 0.04 {
		t.Errorf("20 ms of work moved the clock to %v", now)
	}
}

func TestVirtualClockAdvancesAndReaches(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := NewVirtual()
	c.Pause()
	c.Pause() // pauses nest
	began := c.Now()
	c.Advance(3)
	c.Reach(began + 2)
	if now := c.Now(); now != began+3 {
		t.Errorf("reaching the past: %v, want %v", now, began+3)
	}
	c.Reach(began + 5)
	c.Resume()
	if now := c.Now(); now != began+5 {
		t.Errorf("%v after one Resume of two pauses, want %v", now, began+5)
	}
}

func TestWallClockIgnoresWhatIsVirtual(t *testing.T) {
	c := NewWall()
	c.Pause()
	c.Advance(100)
	c.Reach(100)
	time.Sleep(time.Millisecond)
	if now := c.Now(); now < 0.001 || now > 50 {
		t.Errorf("%v, want real time", now)
	}
	c.Zero(Monotonic() - 7e9)
	if now := c.Now(); now < 7 || now > 57 {
		t.Errorf("%v seven seconds after zero", now)
	}
}

// TestWallClockAt: two moments are as far apart as the monotonic clock says, whenever it is
// asked.
func TestWallClockAt(t *testing.T) {
	c, moment := NewWall(), Monotonic()
	if now := c.Now(); c.At(moment) > now || c.At(moment) < 0 {
		t.Errorf("%v at a moment of before %v", c.At(moment), now)
	}
	if passed := c.At(moment+3_000_000) - c.At(moment); math.Abs(passed-3e-3) > 1e-9 {
		t.Errorf("%v s in 3 ms", passed)
	}
}
