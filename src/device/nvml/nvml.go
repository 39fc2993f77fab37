// Package nvml asks NVIDIA's management library for the GPUs of this machine, their
// state, and the energy they have used.
package nvml

import "errors"

// GPU has the figures of a GPU from NVIDIA's management library. A figure that is not known is 0.
type GPU struct {
	Index       int      `json:"index"`
	Name        string   `json:"name"`
	UUID        string   `json:"uuid"`         // GPU-…
	Bus         string   `json:"bus"`          // domain:bus:device.function
	MemoryBytes int64    `json:"memory_bytes"` // total
	UsedBytes   int64    `json:"used_bytes"`   // by all processes
	ClockMHz    int      `json:"clock_mhz"`    // present clock of the multiprocessors
	MaxMHz      int      `json:"max_mhz"`      // largest clock of the multiprocessors
	MemoryMHz   int      `json:"memory_mhz"`   // present clock of the memory
	PowerWatts  float64  `json:"power_watts"`
	LimitWatts  float64  `json:"limit_watts"`
	Celsius     int      `json:"celsius"`
	Throttle    []string `json:"throttle,omitempty"` // the reasons why the clock is below its maximum
	ECC         bool     `json:"ecc"`                // whether memory errors are detected and counted
	ECCErrors   int64    `json:"ecc_errors"`         // uncorrected, since the driver was loaded
	Fault       string   `json:"fault,omitempty"`    // the error of a query that no healthy GPU gives; "" if there was none
}

// Unknown is the value of a figure of Health that the GPU does not report.
const Unknown = -1

// Health is what a GPU reports about its own faults. A figure may be Unknown.
type Health struct {
	Uncorrected  int // ECC errors that could not be corrected, since the driver was loaded
	Remapped     int // memory rows that were replaced by spare rows
	RemapPending bool
	RemapFailed  bool // a row could not be replaced: the board must be returned
	PCIeWidth    int  // lanes that the link uses
	PCIeMost     int  // lanes that GPU and slot support
	Links        int  // NVLinks that are up

	Fault string // as in GPU
}

// reasons names the bits of the reasons for a low clock. An idle GPU, or one with a fixed clock, is
// not throttled, but its clock is low too.
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

// ErrAbsent is part of the errors on a machine without the library or its driver, and in a binary without
// cgo.
var ErrAbsent = errors.New("nvml: no GPU can be read")
