//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Library is the opened management library.
type Library struct{ lib nvml.Interface }

// Open opens the management library.
func Open() (*Library, error) { return open(nvml.New()) }

func open(lib nvml.Interface) (*Library, error) {
	switch status := lib.Init(); status {
	case nvml.SUCCESS:
		return &Library{lib}, nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("%w: libnvidia-ml.so.1 is not here", errAbsent)
	default:
		return nil, fmt.Errorf("nvml: start: %w", status)
	}
}

// Close closes the library.
func (l *Library) Close() error { return check("end", l.lib.Shutdown()) }

// check returns the error for a status other than success.
func check(what string, status nvml.Return) error {
	if status == nvml.SUCCESS {
		return nil
	}
	return fmt.Errorf("nvml: %s: %w", what, status)
}

// Inventory returns the GPUs of this machine.
func (l *Library) Inventory() ([]GPU, error) {
	count, status := l.lib.DeviceGetCount()
	if err := check("count the GPUs", status); err != nil {
		return nil, err
	}
	gpus := make([]GPU, count)
	for i := range gpus {
		d, status := l.lib.DeviceGetHandleByIndex(i)
		if err := check(fmt.Sprintf("GPU %d", i), status); err != nil {
			return nil, err
		}
		var err error
		if gpus[i], err = look(d, i); err != nil {
			return nil, err
		}
	}
	return gpus, nil
}

// look returns the figures of a GPU. A missing name, UUID or bus is an error. Other figures are not
// known for every product.
func look(d nvml.Device, index int) (GPU, error) {
	g := GPU{Index: index}
	var named, identified, placed nvml.Return
	var pci nvml.PciInfo
	g.Name, named = d.GetName()
	g.UUID, identified = d.GetUUID()
	pci, placed = d.GetPciInfo()
	if err := errors.Join(check("its name", named), check("its UUID", identified), check("its place", placed)); err != nil {
		return g, fmt.Errorf("GPU %d: %w", index, err)
	}
	g.Bus = text(pci.BusId[:])
	if memory, status := d.GetMemoryInfo(); status == nvml.SUCCESS {
		g.MemoryBytes, g.UsedBytes = int64(memory.Total), int64(memory.Used)
	}
	g.ClockMHz = known(d.GetClockInfo(nvml.CLOCK_SM))
	g.MaxMHz = known(d.GetMaxClockInfo(nvml.CLOCK_SM))
	g.MemoryMHz = known(d.GetClockInfo(nvml.CLOCK_MEM))
	g.Celsius = known(d.GetTemperature(nvml.TEMPERATURE_GPU))
	g.PowerWatts = power(d)
	g.LimitWatts = float64(known(d.GetEnforcedPowerLimit())) / 1e3
	if mask, status := d.GetCurrentClocksThrottleReasons(); status == nvml.SUCCESS {
		g.Throttle = throttle(mask)
	}
	if on, _, status := d.GetEccMode(); status == nvml.SUCCESS {
		g.ECC = on == nvml.FEATURE_ENABLED
	}
	if errors, status := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); status == nvml.SUCCESS {
		g.ECCErrors = int64(errors)
	}
	return g, nil
}

// known returns a figure, or 0 if it is not known.
func known(value uint32, status nvml.Return) int {
	if status != nvml.SUCCESS {
		return 0
	}
	return int(value)
}

// power returns the power of a GPU in watts, 0 if not known.
func power(d nvml.Device) float64 { return float64(known(d.GetPowerUsage())) / 1e3 }

// text returns a C string, which may fill its whole array.
func text[C int8 | uint8](c []C) string {
	var b strings.Builder
	for _, x := range c {
		if x == 0 {
			break
		}
		b.WriteByte(byte(x))
	}
	return b.String()
}
