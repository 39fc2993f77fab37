package kernel

import "dynmo/src/device"

// Slowdown has the kernels of a backend on a CPU take longer: Factor times as long as they do.
type Slowdown struct{ Factor float64 }

// NewSlowdown returns a slowdown of factor 1; nil if the kernels cannot be slowed down.
func NewSlowdown(b Backend, clock *device.Clock) *Slowdown {
	kernels, ok := b.(interface{ Around(func(call func())) })
	if !ok {
		return nil
	}
	s := &Slowdown{1}
	kernels.Around(func(call func()) { s.run(clock, call) })
	return s
}

// run makes a call, and has it take longer: a virtual clock by moving it, real time by
// waiting for it to pass.
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
