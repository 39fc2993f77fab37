//go:build cgo

package nvml

import (
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
		return nil, fmt.Errorf("%w: libnvidia-ml.so.1 is not here", ErrAbsent)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return nil, fmt.Errorf("%w: libnvidia-ml.so.1 is here, but the kernel module of the NVIDIA driver is not loaded", ErrAbsent)
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

// Inventory returns the GPUs of this machine, without those that this process may not use. A GPU that does
// not answer is in the list, with its Fault.
func (l *Library) Inventory() ([]GPU, error) {
	var gpus []GPU
	err := l.each(func(i int, d nvml.Device, fault string) {
		g := GPU{Index: i, Fault: fault}
		if fault == "" {
			g = look(d, i)
		}
		gpus = append(gpus, g)
	})
	return gpus, err
}

// each calls visit with the GPUs of this machine that this process may use. fault is the error of a GPU
// without a handle.
func (l *Library) each(visit func(index int, d nvml.Device, fault string)) error {
	count, status := l.lib.DeviceGetCount()
	if err := check("count the GPUs", status); err != nil {
		return err
	}
	for i := range count {
		switch d, status := l.lib.DeviceGetHandleByIndex(i); status {
		case nvml.SUCCESS:
			visit(i, d, "")
		case nvml.ERROR_NO_PERMISSION: // another job has it
		default:
			visit(i, nil, fmt.Sprintf("its handle: %v", status))
		}
	}
	return nil
}

// query asks a GPU, and keeps the first error that no healthy GPU gives.
type query struct{ fault string }

// ok reports whether a query was answered. That a product, a driver or a permission lacks a figure is no
// fault.
func (q *query) ok(what string, status nvml.Return) bool {
	switch status {
	case nvml.SUCCESS:
		return true
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_NO_PERMISSION, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_NOT_FOUND:
	default:
		if q.fault == "" {
			q.fault = fmt.Sprintf("its %s: %v", what, status)
		}
	}
	return false
}

// number returns a figure, or 0 if it is not known.
func (q *query) number(what string, value uint32, status nvml.Return) int {
	if !q.ok(what, status) {
		return 0
	}
	return int(value)
}

// look returns the figures of a GPU.
func look(d nvml.Device, index int) GPU {
	g := GPU{Index: index}
	var q query
	var named, identified, placed nvml.Return
	var pci nvml.PciInfo
	g.Name, named = d.GetName()
	g.UUID, identified = d.GetUUID()
	pci, placed = d.GetPciInfo()
	g.Bus = text(pci.BusId[:])
	for what, status := range map[string]nvml.Return{"name": named, "UUID": identified, "place": placed} {
		if status != nvml.SUCCESS {
			q.fault = fmt.Sprintf("its %s: %v", what, status)
		}
	}
	if memory, status := d.GetMemoryInfo(); q.ok("memory", status) {
		g.MemoryBytes, g.UsedBytes = int64(memory.Total), int64(memory.Used)
	}
	value, status := d.GetClockInfo(nvml.CLOCK_SM)
	g.ClockMHz = q.number("clock", value, status)
	value, status = d.GetMaxClockInfo(nvml.CLOCK_SM)
	g.MaxMHz = q.number("largest clock", value, status)
	value, status = d.GetClockInfo(nvml.CLOCK_MEM)
	g.MemoryMHz = q.number("memory's clock", value, status)
	value, status = d.GetTemperature(nvml.TEMPERATURE_GPU)
	g.Celsius = q.number("temperature", value, status)
	value, status = d.GetPowerUsage()
	g.PowerWatts = float64(q.number("power", value, status)) / 1e3
	value, status = d.GetEnforcedPowerLimit()
	g.LimitWatts = float64(q.number("limit of power", value, status)) / 1e3
	if mask, status := d.GetCurrentClocksThrottleReasons(); q.ok("throttling", status) {
		g.Throttle = throttle(mask)
	}
	if on, _, status := d.GetEccMode(); q.ok("ECC mode", status) {
		g.ECC = on == nvml.FEATURE_ENABLED
	}
	if errors, status := d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); q.ok("ECC errors", status) {
		g.ECCErrors = int64(errors)
	}
	g.Fault = q.fault
	return g
}

// power returns the power of a GPU in watts, 0 if not known.
func power(d nvml.Device) float64 {
	value, status := d.GetPowerUsage()
	return float64(new(query).number("power", value, status)) / 1e3
}

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
