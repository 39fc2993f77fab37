package launch

import (
	"dynmo/src/device/nvml"
	"dynmo/src/record"
)

// energy meters the energy of this rank's GPU, and divides it among the ranks that compute on the
// GPU.
type energy struct {
	library *nvml.Library
	meter   *nvml.Meter // nil if the GPU is not metered
	uuid    string
	ranks   int // that compute on the GPU
}

// newEnergy starts to meter a GPU that `ranks` ranks share. An error means that energy is unknown;
// a run goes on without it.
func newEnergy(uuid string, ranks int) (*energy, error) {
	e := &energy{uuid: uuid, ranks: ranks}
	var err error
	if e.library, err = nvml.Open(); err == nil {
		e.meter, err = e.library.Meter(uuid)
	}
	return e, err
}

// joules returns this rank's share of the GPU's energy since the run began, in joules; -1 if
// unknown.
func (e *energy) joules() float64 {
	if e.meter == nil {
		return -1
	}
	joules, err := e.meter.Joules()
	if err != nil {
		e.meter = nil // after a failure later values cannot be compared with earlier ones
		return -1
	}
	return joules / float64(e.ranks)
}

// tell reports the GPU's state to the observer after `steps` steps: clocks, power, temperature,
// memory, and the reasons for throttling.
func (e *energy) tell(o record.Observer, clock string, steps int) error {
	if e.meter == nil {
		return nil
	}
	gpus, err := e.library.Inventory()
	if err != nil {
		return nil // a run does not fail because its GPU's state is unknown
	}
	for _, g := range gpus {
		if g.UUID != e.uuid {
			continue
		}
		return o.Event(record.Event{Step: steps, Kind: record.GPU, Clock: clock, Detail: map[string]any{
			"name": g.Name, "used_bytes": g.UsedBytes, "clock_mhz": g.ClockMHz, "max_mhz": g.MaxMHz,
			"power_watts": g.PowerWatts, "limit_watts": g.LimitWatts, "celsius": g.Celsius,
			"throttle": g.Throttle, "ecc_errors": g.ECCErrors,
		}})
	}
	return nil
}
