package kernel

import "dynmo/src/device"

// Slowdown injects a fault: every kernel of a backend takes Factor times as long as before.
type Slowdown struct {
	Factor float64 // 1: kernels take their own time. The rank's goroutine may change it between calls
}

// NewSlowdown makes the kernels of b, a backend on host memory, obey the returned Slowdown, whose
// Factor is 1 at first. A virtual clock is moved forward by the additional time; with a wall clock the
// kernel waits for this time to pass. It returns nil if b has no method Around (see Calls.Around).
func NewSlowdown(b Backend, clock *device.Clock) *Slowdown {
	kernels, ok := b.(interface{ Around(func(call func())) })
	if !ok {
		return nil
	}
	s := &Slowdown{1}
	kernels.Around(func(call func()) { s.run(clock, call) })
	return s
}

// run makes a call that takes Factor times as long: it moves a virtual clock, or waits on a wall clock.
func (s *Slowdown) run(clock *device.Clock, call func()) {
	if s.Factor == 1 {
		call()
		return
	}
	start := clock.Now()
	call()
	took := clock.Now() - start
	clock.Advance((s.Factor - 1) * took)
	for clock.Kind() == "wall" && clock.Now() < start+s.Factor*took {
	}
}
