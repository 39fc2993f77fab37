//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Meter measures the energy that one GPU has used, for all processes, since the meter was made.
// GPUs from Volta on count millijoules. For an older GPU the meter adds up power times the time
// between calls of Joules, so Joules must be called often.
type Meter struct {
	d      nvml.Device
	counts bool
	begin  uint64 // count at the begin, in millijoules
	clock  func() time.Time
	last   time.Time // time of the last reading of power
	watts  float64
	summed float64 // joules
}

// Meter returns a meter for the GPU with this UUID (GPU-…).
func (l *Library) Meter(uuid string) (*Meter, error) {
	d, status := l.lib.DeviceGetHandleByUUID(uuid)
	if err := check(uuid, status); err != nil {
		return nil, err
	}
	return newMeter(d, time.Now)
}

func newMeter(d nvml.Device, clock func() time.Time) (*Meter, error) {
	m := &Meter{d: d, clock: clock, last: clock(), watts: power(d)}
	begin, status := d.GetTotalEnergyConsumption()
	m.begin, m.counts = begin, status == nvml.SUCCESS
	if !m.counts && m.watts == 0 {
		return nil, fmt.Errorf("nvml: this GPU tells neither energy nor power: %w", status)
	}
	return m, nil
}

// Joules returns the energy since the meter was made.
func (m *Meter) Joules() (float64, error) {
	if m.counts {
		total, status := m.d.GetTotalEnergyConsumption()
		if err := check("energy", status); err != nil {
			return 0, err
		}
		return float64(total-m.begin) / 1e3, nil
	}
	watts, read := power(m.d), m.clock()
	if watts == 0 {
		return 0, errors.New("nvml: this GPU no longer tells its power")
	}
	m.summed += (m.watts + watts) / 2 * read.Sub(m.last).Seconds()
	m.watts, m.last = watts, read
	return m.summed, nil
}
