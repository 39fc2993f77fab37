package launch

import (
	"dynmo/src/device/nvml"
	"dynmo/src/record"
)

// energy meters the energy of this rank's GPU, divided among its ranks.
type energy struct {
	library *nvml.Library
	meter   *nvml.Meter // nil if nothing meters it
	uuid    string
	ranks   int // that compute on the GPU
}

// newEnergy meters a GPU. With an error there is nothing that tells its energy,
// without which a run goes on.
func newEnergy(uuid string, ranks int) (*energy, error) {
	e := &energy{uuid: uuid, ranks: ranks}
	var err error
	if e.library, err = nvml.Open(); err == nil {
		e.meter, err = e.library.Meter(uuid)
	}
	return e, err
}

// joules returns the energy since the run began, -1 if the GPU's is not metered.
func (e *energy) joules() float64 {
	if e.meter == nil {
		return -1
	}
	joules, err := e.meter.Joules()
	if err != nil {
		e.meter = nil // a meter that fails once tells nothing that can be compared
		return -1
	}
	return joules / float64(e.ranks)
}

// tell tells how the GPU fares after a number of steps: clocks, power,
// temperature, memory, and why it is held back.
func (e *energy) tell(o record.Observer, clock string, steps int) error {
	if e.meter == nil {
		return nil
	}
	gpus, err := e.library.Inventory()
	if err != nil {
		return nil // the run is over, and is not worse for it
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
