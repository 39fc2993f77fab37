package train

import (
	"errors"

	"dynmo/src/device"
	"dynmo/src/fault"
	"dynmo/src/tensor"
)

// slows has kernels take longer: by factor in the steps that a fault says, else as long as
// they do.
type slows struct{ factor float64 }

// slowDown makes ready for a fault that slows this rank down.
func (r *Rank) slowDown() error {
	if r.Fault == nil || r.Fault.Kind != fault.Slow || r.Fault.Rank != r.World.Rank() {
		return nil
	}
	kernels, ok := r.Backend.(interface{ Around(func(call func())) })
	if !ok || r.Device.Space() != tensor.Host {
		return Input(errors.New(fault.Variable + ": only a rank that computes on a CPU can be slowed down"))
	}
	r.slows = &slows{1}
	clock := r.Device.Clock()
	kernels.Around(func(call func()) { r.slows.run(clock, call) })
	return nil
}

// run makes a call, and has it take longer: a virtual clock by moving it, real time by
// waiting for it to pass.
func (s *slows) run(clock *device.Clock, call func()) {
	if s.factor == 1 {
		call()
		return
	}
	start := clock.Now()
	call()
	took := clock.Now() - start
	clock.Advance((s.factor - 1) * took)
	for clock.Kind() == "wall" && clock.Now() < start+s.factor*took {
	}
}

// begin sets how long the kernels take in a step.
func (s *slows) begin(f *fault.Fault, step int) {
	if s == nil {
		return
	}
	if s.factor = 1; f.Step <= step && step <= f.Last {
		s.factor = f.Factor
	}
}
