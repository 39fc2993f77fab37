// Package nvml asks NVIDIA's management library for the GPUs of this machine, their
// state, and the energy they have used.
package nvml

import "errors"

// GPU is a GPU as NVIDIA's management library sees it. A figure that is not known
// is 0.
type GPU struct {
	Index       int      `json:"index"`
	Name        string   `json:"name"`
	UUID        string   `json:"uuid"`         // GPU-…
	Bus         string   `json:"bus"`          // domain:bus:device.function
	MemoryBytes int64    `json:"memory_bytes"` // in all
	UsedBytes   int64    `json:"used_bytes"`   // by all processes
	ClockMHz    int      `json:"clock_mhz"`    // of the multiprocessors, at the moment
	MaxMHz      int      `json:"max_mhz"`      // that they can reach
	MemoryMHz   int      `json:"memory_mhz"`   // of the memory, at the moment
	PowerWatts  float64  `json:"power_watts"`
	LimitWatts  float64  `json:"limit_watts"`
	Celsius     int      `json:"celsius"`
	Throttle    []string `json:"throttle,omitempty"` // why the clock is below its maximum
	ECC         bool     `json:"ecc"`                // whether errors of the memory are found and counted
	ECCErrors   int64    `json:"ecc_errors"`         // uncorrected, since the driver was loaded
}

// Unknown is a figure of a Health that the GPU does not tell.
const Unknown = -1

// Health is what a GPU reports about its own faults. A figure may be Unknown.
type Health struct {
	Uncorrected  int // ECC errors that could not be corrected, since the driver was loaded
	Remapped     int // rows of the memory that were replaced by spare ones
	RemapPending bool
	RemapFailed  bool // a row could not be replaced: return the board
	PCIeWidth    int  // lanes that the link uses
	PCIeMost     int  // lanes that GPU and slot have
	Links        int  // NVLinks that are up
}

// reasons names the bits of why a clock is held back. An idle GPU and one whose
// clocks were set on purpose are not throttled, but their clock is low as well.
var reasons = []struct {
	bit  uint64
	name string
}{
	{1 << 0, "idle"},
	{1 << 1, "clocks set by the user"},
	{1 << 2, "power cap"},
	{1 << 3, "hardware slowdown"},
	{1 << 4, "clocks in step with another GPU"},
	{1 << 5, "software thermal slowdown"},
	{1 << 6, "hardware thermal slowdown"},
	{1 << 7, "power brake"},
	{1 << 8, "clocks set by a display"},
}

// throttle returns the names of the reasons in a mask.
func throttle(mask uint64) []string {
	var names []string
	for _, r := range reasons {
		if mask&r.bit != 0 {
			names = append(names, r.name)
		}
	}
	return names
}

// errAbsent is in the errors of a machine, or a binary, without the library.
var errAbsent = errors.New("nvml: NVIDIA's management library cannot be opened")
