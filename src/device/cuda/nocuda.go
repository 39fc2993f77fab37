//go:build !(cuda && cgo)

package cuda

import (
	"errors"

	"dynmo/src/device"
)

// Built is whether this binary contains the device.
const Built = false

var errWithout = errors.New("cuda: this binary was built without the tag cuda: build bin/dynmo-cuda with ./build.sh cuda")

// Device is a GPU. This binary cannot make one.
type Device struct{ device.Device }

// Visible returns an error: this binary was built without the device.
func Visible() (int, error) { return 0, errWithout }

// New returns an error: this binary was built without the device.
func New(clock *device.Clock, ordinal int) (*Device, error) { return nil, errWithout }

// Describe returns no GPU.
func (d *Device) Describe() GPU { return GPU{} }

// Memory returns an error: this binary was built without the device.
func (d *Device) Memory() (free, total int64, err error) { return 0, 0, errWithout }
