package comm

import (
	"sync"
	"sync/atomic"
	"time"
)

// mostGap is the longest time between two looks at a RunTime that counts. Waits look many times in a
// second, so this process itself did not run in a longer gap.
const mostGap = time.Second

// RunTime measures how long this process has run since the first look. A process does not run while
// it is stopped, as in a suspended job. The zero RunTime is ready to use.
type RunTime struct {
	last time.Time // of the last look
	ran  time.Duration
}

// At looks at the time now, and returns how long this process has run.
func (r *RunTime) At(now time.Time) time.Duration {
	if !r.last.IsZero() {
		r.ran += min(now.Sub(r.last), mostGap)
	}
	r.last = now
	return r.ran
}

// process is the run time of this process since the first call of Ran.
var process struct {
	sync.Mutex
	RunTime
	looks sync.Once
}

// Ran returns how long this process has run since the first call.
func Ran() time.Duration {
	process.looks.Do(func() {
		go func() {
			for range time.Tick(WatchEvery) {
				_ = Ran()
			}
		}()
	})
	process.Lock()
	defer process.Unlock()
	return process.At(time.Now())
}

// Deadline passes once this process has run for a limit.
type Deadline struct {
	RunTime
	limit time.Duration
}

// NewDeadline returns a deadline after this process has run for limit.
func NewDeadline(limit time.Duration) *Deadline {
	d := &Deadline{limit: limit}
	d.At(time.Now())
	return d
}

// Passed looks whether the deadline has passed.
func (d *Deadline) Passed() bool { return d.At(time.Now()) >= d.limit }

// AfterFunc calls f in a goroutine of its own once this process has run for limit. stop prevents
// that, and returns false if f was called before.
func AfterFunc(limit time.Duration, f func()) (stop func() bool) {
	var ended atomic.Bool
	stopped := make(chan struct{})
	deadline := NewDeadline(limit)
	go func() {
		tick := time.NewTicker(WatchEvery)
		defer tick.Stop()
		for !deadline.Passed() {
			select {
			case <-stopped:
				return
			case <-tick.C:
			}
		}
		if ended.CompareAndSwap(false, true) {
			f()
		}
	}()
	return func() bool {
		first := ended.CompareAndSwap(false, true)
		if first {
			close(stopped)
		}
		return first
	}
}
