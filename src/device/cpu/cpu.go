// Package cpu is the host as a device: memory straight from the system, so
// that freeing a migrated layer really gives its pages back, and streams whose
// work is done when the call returns.
package cpu

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Device is the host.
type Device struct {
	clock *device.Clock
	used  int64
}

// New returns the host as a device that times its events with clock.
func New(clock *device.Clock) *Device { return &Device{clock: clock} }

// Name returns "cpu".
func (d *Device) Name() string { return "cpu" }

// Space returns tensor.Host.
func (d *Device) Space() tensor.Space { return tensor.Host }

// Used returns the bytes allocated and not freed.
func (d *Device) Used() int64 { return d.used }

// Clock returns the clock given to New.
func (d *Device) Clock() *device.Clock { return d.clock }

// Alloc maps zeroed pages outside Go's heap: C may keep pointers into them,
// and every span begins at the same alignment on every rank.
func (d *Device) Alloc(bytes int64) (tensor.Mem, error) {
	if bytes == 0 {
		return tensor.Mem{}, nil
	}
	b, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return tensor.Mem{}, fmt.Errorf("cpu: allocate %d bytes (%d in use): %w", bytes, d.used, err)
	}
	d.used += bytes
	return tensor.Mem{Ptr: unsafe.Pointer(&b[0]), Bytes: bytes, Space: tensor.Host}, nil
}

// Free unmaps memory that Alloc gave.
func (d *Device) Free(m tensor.Mem) {
	if m.IsZero() {
		return
	}
	if err := unix.Munmap(tensor.Of[byte](m)); err != nil {
		panic("cpu: Free of memory that Alloc did not give")
	}
	d.used -= m.Bytes
}

// NewStream returns a stream that works at once.
func (d *Device) NewStream() device.Stream { return stream{d.clock} }

type stream struct{ clock *device.Clock }

func (s stream) After(device.Event)       {}
func (s stream) Copy(dst, src tensor.Mem) { copy(tensor.Of[byte](dst), tensor.Of[byte](src)) }
func (s stream) Zero(dst tensor.Mem)      { clear(tensor.Of[byte](dst)) }
func (s stream) Sync() error              { return nil }

func (s stream) Record(reuse device.Event) device.Event {
	e, ok := reuse.(*event)
	if !ok {
		e = new(event)
	}
	e.seconds = s.clock.Now()
	return e
}

type event struct{ seconds float64 }

func (*event) Wait() error        { return nil }
func (e *event) Seconds() float64 { return e.seconds }
