// Package cpu is the host as a device. Memory comes directly from the system, and Free returns its
// pages to the system (Recycle changes this). Work on a stream is done when the call returns.
package cpu

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Device is the host.
type Device struct {
	clock *device.Clock
	used  int64

	sparse bool

	recycling bool   // a round of Recycle is on
	allocated bool   // Alloc was called in this round
	freed     int64  // bytes of the pages that were freed in this round
	kept      ranges // freed in this round or an earlier one, and not used since
	moved     int    // how often gather has moved pages
}

// New returns the host as a device that times its events with clock.
func New(clock *device.Clock) *Device { return &Device{clock: clock} }

// NewSparse is New for memory that is rarely written. Pages that are never written take no host
// memory, and pages that a stream sets to zero are returned to the system.
func NewSparse(clock *device.Clock) *Device { return &Device{clock: clock, sparse: true} }

// Name returns "cpu".
func (d *Device) Name() string { return "cpu" }

// Space returns tensor.Host.
func (d *Device) Space() tensor.Space { return tensor.Host }

// Used returns the bytes allocated and not freed.
func (d *Device) Used() int64 { return d.used }

// Clock returns the clock given to New.
func (d *Device) Clock() *device.Clock { return d.clock }

// hugeFrom is the size of a huge page on x86-64 and most arm64. Memory of at least this size is
// mapped with huge pages. Its first use is then much faster, and later uses have fewer TLB misses.
// It takes no more memory than without.
const hugeFrom = 2 << 20

// Alloc maps zeroed pages outside Go's heap. C may keep pointers into them, and every span has the
// same alignment on every rank. Between Recycle(true) and Recycle(false) it may return memory that
// is not zero.
func (d *Device) Alloc(bytes int64) (tensor.Mem, error) {
	if bytes == 0 {
		return tensor.Mem{}, nil
	}
	var m tensor.Mem
	if d.recycling {
		m = d.reuse(bytes)
	}
	if m.IsZero() {
		p, err := d.mapped(bytes)
		if err != nil { // freeing the kept memory may suffice
			d.Trim()
			p, err = d.mapped(bytes)
		}
		if err != nil {
			return tensor.Mem{}, fmt.Errorf("cpu: allocate %d bytes (%d in use): %w", bytes, d.used, err)
		}
		m = tensor.Mem{Ptr: p, Bytes: bytes, Space: tensor.Host}
		if bytes >= hugeFrom && !d.sparse {
			_ = unix.Madvise(tensor.Of[byte](m), unix.MADV_HUGEPAGE) // a kernel without huge pages works too
		}
	}
	d.used += bytes
	return m, nil
}

func (d *Device) mapped(bytes int64) (unsafe.Pointer, error) {
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if d.sparse {
		flags |= unix.MAP_NORESERVE
	}
	return unix.MmapPtr(-1, 0, nil, uintptr(bytes), unix.PROT_READ|unix.PROT_WRITE, flags)
}

// Free unmaps memory from Alloc, or keeps it: see Recycle.
func (d *Device) Free(m tensor.Mem) {
	if m.IsZero() {
		return
	}
	d.used -= m.Bytes
	if d.recycling {
		d.keep(m)
		return
	}
	unmap(m)
}

// AllocHost maps zeroed pages. Used does not count them.
func (d *Device) AllocHost(bytes int64) (tensor.Mem, error) {
	if bytes == 0 {
		return tensor.Mem{}, nil
	}
	p, err := d.mapped(bytes)
	if err != nil {
		return tensor.Mem{}, fmt.Errorf("cpu: allocate %d bytes of host memory: %w", bytes, err)
	}
	return tensor.Mem{Ptr: p, Bytes: bytes, Space: tensor.Host}, nil
}

// FreeHost unmaps memory from AllocHost.
func (d *Device) FreeHost(m tensor.Mem) {
	if !m.IsZero() {
		unmap(m)
	}
}

// Close frees the kept memory.
func (d *Device) Close() error {
	d.Trim()
	return nil
}

// Attach does nothing: any thread may call a library.
func (d *Device) Attach() error { return nil }

// NewStream returns a stream that executes work immediately.
func (d *Device) NewStream() device.Stream { return stream{d.clock, d.sparse} }

type stream struct {
	clock  *device.Clock
	sparse bool
}

func (s stream) After(device.Event)       {}
func (s stream) Copy(dst, src tensor.Mem) { copy(tensor.Of[byte](dst), tensor.Of[byte](src)) }
func (s stream) Sync() error              { return nil }
func (s stream) Close()                   {}

// Zero sets memory to zero. A sparse device returns the whole pages in it to the system; they read
// as zero.
func (s stream) Zero(dst tensor.Mem) {
	b := tensor.Of[byte](dst)
	if s.sparse {
		page := int64(os.Getpagesize())
		lo := min(dst.Bytes, -int64(uintptr(dst.Ptr))&(page-1))
		hi := lo + (dst.Bytes-lo)/page*page
		if lo < hi && unix.Madvise(b[lo:hi], unix.MADV_DONTNEED) == nil {
			clear(b[:lo])
			b = b[hi:]
		}
	}
	clear(b)
}

func (s stream) Capture(enqueue func()) device.Graph { return device.Calls(enqueue) }

func (s stream) Record(reuse device.Event) device.Event {
	e, ok := reuse.(*event)
	if !ok {
		e = new(event)
	}
	e.seconds = s.clock.Now()
	return e
}

type event struct{ seconds float64 }

func (*event) Wait() error         { return nil }
func (*event) Done() (bool, error) { return true, nil }
func (e *event) Seconds() float64  { return e.seconds }
