package cuda

import (
	"errors"
	"fmt"
)

// Driver describes the NVIDIA driver of this machine.
type Driver struct {
	Version int      // the newest CUDA that it supports: 1000·major + 10·minor
	GPUs    []string // names of the products that this process sees, by ordinal
}

// String returns "CUDA 12.4, 2 GPUs".
func (d Driver) String() string {
	plural := "s"
	if len(d.GPUs) == 1 {
		plural = ""
	}
	return fmt.Sprintf("CUDA %d.%d, %d GPU%s", d.Version/1000, d.Version%1000/10, len(d.GPUs), plural)
}

// errNoDriver is part of Probe's error if there is no driver.
var errNoDriver = errors.New("no NVIDIA driver")
