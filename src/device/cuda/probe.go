package cuda

import (
	"errors"
	"fmt"
)

// Driver describes the NVIDIA driver of this machine.
type Driver struct {
	Version int      // the newest CUDA it serves: 1000·major + 10·minor
	GPUs    []string // the products this process sees, by ordinal
}

// String returns "CUDA 12.4, 2 GPUs".
func (d Driver) String() string {
	plural := "s"
	if len(d.GPUs) == 1 {
		plural = ""
	}
	return fmt.Sprintf("CUDA %d.%d, %d GPU%s", d.Version/1000, d.Version%1000/10, len(d.GPUs), plural)
}

// ErrNoDriver is in the error of Probe where there is no driver at all.
var errNoDriver = errors.New("no NVIDIA driver")
