package train

import (
	"dynmo/src/device/nvml"
	"dynmo/src/record"
	"dynmo/src/tensor"
)

// Energy meters this rank's share of the energy that its GPU uses.
type Energy struct {
	library *nvml.Library
	meter   *nvml.Meter
	uuid    string
	sharers int // ranks that the GPU is of
}

// newEnergy meters a GPU. It returns an error where there is nothing that tells
// its energy, without which a run goes on.
func newEnergy(uuid string, sharers int) (*Energy, error) {
	library, err := nvml.Open()
	if err != nil {
		return nil, err
	}
	meter, err := library.Meter(uuid)
	if err != nil {
		return nil, err
	}
	return &Energy{library, meter, uuid, sharers}, nil
}

// joules returns the energy since the run began; -1 where a GPU's is not metered, 0
// on a CPU.
func (r *Rank) joules() float64 {
	if r.Energy == nil {
		if r.Device.Space() == tensor.Device {
			return -1
		}
		return 0
	}
	joules, err := r.Energy.meter.Joules()
	if err != nil {
		r.Energy = nil // a meter that fails once tells nothing that can be compared
		return -1
	}
	return joules / float64(r.Energy.sharers)
}

// tellGPU tells how the GPU of rank 0 fares after a number of steps: clocks,
// power, temperature, memory, and why it is held back.
func (r *Rank) tellGPU(steps int) error {
	if r.Energy == nil || r.World.Rank() != 0 {
		return nil
	}
	gpus, err := r.Energy.library.Inventory()
	if err != nil {
		return nil // the run is over, and is not worse for it
	}
	for _, g := range gpus {
		if g.UUID != r.Energy.uuid {
			continue
		}
		return r.event(record.Event{Step: steps, Kind: record.GPU, Clock: r.Device.Clock().Kind(), Detail: map[string]any{
			"name": g.Name, "used_bytes": g.UsedBytes, "clock_mhz": g.ClockMHz, "max_mhz": g.MaxMHz,
			"power_watts": g.PowerWatts, "limit_watts": g.LimitWatts, "celsius": g.Celsius,
			"throttle": g.Throttle, "ecc_errors": g.ECCErrors,
		}})
	}
	return nil
}
