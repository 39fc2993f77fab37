//go:build cgo

package nvml

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"dynmo/src/expect"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// bare returns a GPU that answers only the required queries.
func bare() *mock.Device {
	const no = nvml.ERROR_NOT_SUPPORTED
	return &mock.Device{
		GetNameFunc: func() (string, nvml.Return) { return "Mock", nvml.SUCCESS },
		GetUUIDFunc: func() (string, nvml.Return) { return "GPU-1", nvml.SUCCESS },
		GetPciInfoFunc: func() (nvml.PciInfo, nvml.Return) {
			var pci nvml.PciInfo
			for i, c := range "00000000:4E:00.0" {
				pci.BusId[i] = int8(c)
			}
			return pci, nvml.SUCCESS
		},
		GetMemoryInfoFunc:                   func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, no },
		GetClockInfoFunc:                    func(nvml.ClockType) (uint32, nvml.Return) { return 7, no },
		GetMaxClockInfoFunc:                 func(nvml.ClockType) (uint32, nvml.Return) { return 7, no },
		GetTemperatureFunc:                  func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 7, no },
		GetPowerUsageFunc:                   func() (uint32, nvml.Return) { return 7, no },
		GetEnforcedPowerLimitFunc:           func() (uint32, nvml.Return) { return 7, no },
		GetCurrentClocksThrottleReasonsFunc: func() (uint64, nvml.Return) { return 7, no },
		GetEccModeFunc:                      func() (nvml.EnableState, nvml.EnableState, nvml.Return) { return 1, 1, no },
		GetTotalEccErrorsFunc:               func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 7, no },
		GetTotalEnergyConsumptionFunc:       func() (uint64, nvml.Return) { return 7, no },
		GetRemappedRowsFunc:                 func() (int, int, bool, bool, nvml.Return) { return 7, 7, true, true, no },
		GetCurrPcieLinkWidthFunc:            func() (int, nvml.Return) { return 7, no },
		GetMaxPcieLinkWidthFunc:             func() (int, nvml.Return) { return 7, no },
		GetNvLinkStateFunc:                  func(int) (nvml.EnableState, nvml.Return) { return nvml.FEATURE_ENABLED, no },
	}
}

// talkative returns a GPU that tells all.
func talkative() *mock.Device {
	d := bare()
	const yes = nvml.SUCCESS
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 80 << 30, Used: 3 << 30}, yes }
	d.GetClockInfoFunc = func(c nvml.ClockType) (uint32, nvml.Return) {
		return map[nvml.ClockType]uint32{nvml.CLOCK_SM: 1410, nvml.CLOCK_MEM: 2619}[c], yes
	}
	d.GetMaxClockInfoFunc = func(nvml.ClockType) (uint32, nvml.Return) { return 1980, yes }
	d.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 61, yes }
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 512_250, yes }
	d.GetEnforcedPowerLimitFunc = func() (uint32, nvml.Return) { return 700_000, yes }
	d.GetCurrentClocksThrottleReasonsFunc = func() (uint64, nvml.Return) { return 1<<2 | 1<<6, yes }
	d.GetEccModeFunc = func() (nvml.EnableState, nvml.EnableState, nvml.Return) {
		return nvml.FEATURE_ENABLED, nvml.FEATURE_ENABLED, yes
	}
	d.GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) { return 2, yes }
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 3, 1, true, false, yes }
	d.GetCurrPcieLinkWidthFunc = func() (int, nvml.Return) { return 8, yes }
	d.GetMaxPcieLinkWidthFunc = func() (int, nvml.Return) { return 16, yes }
	d.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		switch {
		case link < 3:
			return nvml.FEATURE_ENABLED, yes
		case link == 3:
			return nvml.FEATURE_DISABLED, yes
		}
		return nvml.FEATURE_ENABLED, nvml.ERROR_INVALID_ARGUMENT
	}
	return d
}

func library(t *testing.T, gpus ...nvml.Device) *Library {
	t.Helper()
	l, err := open(&mock.Interface{
		InitFunc:                   func() nvml.Return { return nvml.SUCCESS },
		DeviceGetCountFunc:         func() (int, nvml.Return) { return len(gpus), nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) { return gpus[i], nvml.SUCCESS },
		DeviceGetHandleByUUIDFunc: func(uuid string) (nvml.Device, nvml.Return) {
			for _, d := range gpus {
				if id, _ := d.GetUUID(); id == uuid {
					return d, nvml.SUCCESS
				}
			}
			return nil, nvml.ERROR_NOT_FOUND
		},
	})
	expect.OK(t, err)
	return l
}

func TestInventory(t *testing.T) {
	gpus, err := library(t, bare(), talkative()).Inventory()
	expect.OK(t, err)
	if g := gpus[0]; g.Name != "Mock" || g.Bus != "00000000:4E:00.0" || g.ClockMHz != 0 || g.Celsius != 0 ||
		g.PowerWatts != 0 || g.LimitWatts != 0 || g.Throttle != nil || g.ECC || g.ECCErrors != 0 {
		t.Errorf("a GPU that tells nothing: %+v", g)
	}
	g := gpus[1]
	if g.Index != 1 || g.MemoryBytes != 80<<30 || g.UsedBytes != 3<<30 || g.ClockMHz != 1410 || g.MaxMHz != 1980 ||
		g.MemoryMHz != 2619 || g.Celsius != 61 || g.PowerWatts != 512.25 || g.LimitWatts != 700 || !g.ECC || g.ECCErrors != 2 {
		t.Errorf("a GPU that tells all: %+v", g)
	}
	if want := []string{"power cap", "hardware thermal slowdown"}; !slices.Equal(g.Throttle, want) {
		t.Errorf("throttled by %v, want %v", g.Throttle, want)
	}
}

func TestHealth(t *testing.T) {
	list, err := library(t, bare(), talkative()).Health()
	expect.OK(t, err)
	for i, want := range []Health{
		{Uncorrected: Unknown, Remapped: Unknown, PCIeWidth: Unknown, PCIeMost: Unknown, Links: Unknown},
		{Uncorrected: 2, Remapped: 4, RemapPending: true, PCIeWidth: 8, PCIeMost: 16, Links: 3},
	} {
		if list[i] != want {
			t.Errorf("GPU %d: %+v, want %+v", i, list[i], want)
		}
	}
}

// TestLostGPU: an error that no healthy GPU gives is in the GPU's Fault, and the other GPUs are listed.
func TestLostGPU(t *testing.T) {
	nameless, silent := bare(), talkative()
	nameless.GetNameFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	silent.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	silent.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, nvml.ERROR_GPU_IS_LOST }
	l := library(t, nameless, silent, bare())
	gpus, err := l.Inventory()
	expect.OK(t, err)
	health, err := l.Health()
	expect.OK(t, err)
	for i, want := range []string{"its name: ", "its temperature: ", ""} {
		if got := gpus[i].Fault; !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("GPU %d: fault %q, want %q", i, got, want)
		}
	}
	if len(gpus) != 3 || health[0].Fault != "" || !strings.HasPrefix(health[1].Fault, "its remapped rows: ") {
		t.Errorf("%d GPUs, %+v", len(gpus), health)
	}
}

func TestMissingLibrary(t *testing.T) {
	_, err := open(nvml.New(nvml.WithLibraryPath("libnvidia-ml-that-is-not-here.so")))
	if !errors.Is(err, ErrAbsent) {
		t.Errorf("no library: %v", err)
	}
	for status, absent := range map[nvml.Return]bool{nvml.ERROR_DRIVER_NOT_LOADED: true, nvml.ERROR_LIB_RM_VERSION_MISMATCH: false} {
		_, err = open(&mock.Interface{InitFunc: func() nvml.Return { return status }})
		if err == nil || errors.Is(err, ErrAbsent) != absent {
			t.Errorf("status %d: %v", status, err)
		}
		if absent && !strings.Contains(err.Error(), "libnvidia-ml.so.1 is here, but the kernel module of the NVIDIA driver is not loaded") {
			t.Errorf("without a driver: %v", err)
		}
	}
}

func TestMeterCounts(t *testing.T) {
	d, millijoules := bare(), uint64(5000)
	d.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return millijoules, nvml.SUCCESS }
	m, err := library(t, d).Meter("GPU-1")
	expect.OK(t, err)
	millijoules += 12_500
	if joules, err := m.Joules(); err != nil || joules != 12.5 {
		t.Errorf("%g J, %v, want 12.5", joules, err)
	}
	d.GetTotalEnergyConsumptionFunc = func() (uint64, nvml.Return) { return 0, nvml.ERROR_GPU_IS_LOST }
	if _, err := m.Joules(); err == nil {
		t.Error("a lost GPU told its energy")
	}
}

func TestMeterAddsUpPower(t *testing.T) {
	d, milliwatts, now := bare(), uint32(100_000), time.Unix(0, 0)
	d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return milliwatts, nvml.SUCCESS }
	m, err := newMeter(d, func() time.Time { return now })
	expect.OK(t, err)
	for _, step := range []struct {
		seconds    float64
		milliwatts uint32
		joules     float64
	}{
		{2, 300_000, 400}, // (100 + 300) / 2 · 2
		{1, 300_000, 700},
		{0, 100_000, 700},
		{4, 100_000, 1100},
	} {
		now = now.Add(time.Duration(step.seconds * float64(time.Second)))
		milliwatts = step.milliwatts
		if joules, err := m.Joules(); err != nil || joules != step.joules {
			t.Errorf("after %g s at %d mW: %g J, %v, want %g", step.seconds, step.milliwatts, joules, err, step.joules)
		}
	}
}

func TestMeterOfSilentGPU(t *testing.T) {
	if _, err := library(t, bare()).Meter("GPU-1"); err == nil {
		t.Error("a meter of a GPU that tells neither energy nor power")
	}
	if _, err := library(t).Meter("GPU-2"); err == nil {
		t.Error("a meter of a GPU that is not here")
	}
}
