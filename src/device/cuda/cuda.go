//go:build cuda && cgo

package cuda

/*
#cgo LDFLAGS: -lcuda
#include <cuda.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Built is whether this binary contains the device.
const Built = true

// Device is one GPU, used through its primary context. The CUDA runtime and its libraries share
// that context.
type Device struct {
	clock   *device.Clock
	gpu     cu.Device
	about   GPU
	context cu.CUContext
	pool    pool
	pinned  pinned
	fill    cu.Stream // zeroes the memory that Alloc returns
	streams []*Stream // open streams, the oldest first
	events  eventPool
	staging ring
	graphs  Graphs
}

// Visible returns the number of GPUs that this process can see.
func Visible() (int, error) {
	count, err := cu.NumDevices()
	if err != nil {
		return 0, fmt.Errorf("cuda: count the GPUs: %w", explain(err))
	}
	return count, nil
}

// New returns the GPU with the driver's number ordinal, and locks the calling goroutine to its
// thread. Only that thread may use the device. Events are timed by clock, which must be a wall
// clock: the work of a GPU takes no CPU time.
func New(clock *device.Clock, ordinal int) (*Device, error) {
	if clock.Kind() != "wall" {
		return nil, fmt.Errorf("cuda: events cannot be timed by a %s clock: want run.clock = \"wall\"", clock.Kind())
	}
	count, err := Visible()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= count {
		return nil, fmt.Errorf("cuda: there is no GPU %d: this process sees %d, from 0 on", ordinal, count)
	}
	d := &Device{clock: clock, gpu: cu.Device(ordinal)}
	if err := d.open(ordinal); err != nil {
		return nil, fmt.Errorf("cuda: GPU %d: %w", ordinal, err)
	}
	return d, nil
}

// open makes the context current on this thread permanently.
func (d *Device) open(ordinal int) error {
	var err error
	if d.gpu, err = cu.GetDevice(ordinal); err != nil {
		return explain(err)
	}
	if d.about, err = describe(d.gpu); err != nil {
		return explain(err)
	}
	if d.context, err = d.gpu.RetainPrimaryCtx(); err != nil {
		return fmt.Errorf("make a context on it: %w", explain(err))
	}
	if err := d.Attach(); err != nil {
		return err
	}
	if d.fill, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return fmt.Errorf("make a stream: %w", explain(err))
	}
	d.pool.live = map[unsafe.Pointer]int64{}
	return nil
}

// Attach makes the GPU's context current on the calling goroutine's thread.
func (d *Device) Attach() error {
	if err := d.context.Lock(); err != nil {
		return fmt.Errorf("use its context: %w", explain(err))
	}
	return nil
}

func describe(gpu cu.Device) (g GPU, err error) {
	if g.Name, err = gpu.Name(); err != nil {
		return g, err
	}
	id, err := gpu.UUID()
	if err != nil {
		return g, err
	}
	g.UUID = "GPU-" + id.String()
	if g.Memory, err = gpu.TotalMem(); err != nil {
		return g, err
	}
	var domain, bus, slot int
	for _, a := range []struct {
		attribute cu.DeviceAttribute
		to        *int
	}{
		{cu.ComputeCapabilityMajor, &g.Major}, {cu.ComputeCapabilityMinor, &g.Minor},
		{cu.PciDomainID, &domain}, {cu.PciBusID, &bus}, {cu.PciDeviceID, &slot},
	} {
		if *a.to, err = gpu.Attribute(a.attribute); err != nil {
			return g, err
		}
	}
	g.Bus = fmt.Sprintf("%08x:%02x:%02x.0", domain, bus, slot)
	return g, nil
}

// Describe returns the identity of the GPU.
func (d *Device) Describe() GPU { return d.about }

// Name returns "cuda".
func (d *Device) Name() string { return "cuda" }

// Space returns tensor.Device.
func (d *Device) Space() tensor.Space { return tensor.Device }

// Clock returns the clock given to New.
func (d *Device) Clock() *device.Clock { return d.clock }

// Memory returns the free bytes of the GPU, and the total.
func (d *Device) Memory() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, explain(err)
}

// Close releases all memory, streams and events, and the context. All memory must have been freed.
func (d *Device) Close() error {
	err := cu.Synchronize()
	for len(d.streams) > 0 {
		d.streams[0].Close()
	}
	d.staging.close(d)
	d.pool.trim()
	return explain(errors.Join(err, d.events.close(), d.fill.Destroy(), d.gpu.ReleasePrimaryCtx()))
}

// AllocHost returns zeroed pinned memory. The GPU can copy from and to it while the host does other
// work.
func (d *Device) AllocHost(bytes int64) (tensor.Mem, error) {
	if bytes == 0 {
		return tensor.Mem{}, nil
	}
	var p unsafe.Pointer
	if status := C.cuMemHostAlloc(&p, C.size_t(bytes), C.CU_MEMHOSTALLOC_PORTABLE); status != 0 {
		return tensor.Mem{}, fmt.Errorf("cuda: allocate %d bytes of pinned host memory: %w", bytes, explain(named(status)))
	}
	m := tensor.Mem{Ptr: p, Bytes: bytes, Space: tensor.Host}
	clear(tensor.Of[byte](m))
	d.pinned.add(m)
	return m, nil
}

// FreeHost frees memory from AllocHost. No copy may use it any more.
func (d *Device) FreeHost(m tensor.Mem) {
	if m.IsZero() {
		return
	}
	d.pinned.remove(m)
	_ = cu.MemFreeHost(m.Ptr) // fails only after another failure
}

// NewStream returns a stream that waits for no other stream. The first Sync returns an error of
// NewStream.
func (d *Device) NewStream() device.Stream { return d.newStream(0) }

// NewUrgentStream returns a stream whose kernels the GPU starts before those of other streams.
func (d *Device) NewUrgentStream() device.Stream {
	_, highest, err := cu.StreamPriorityRange()
	s := d.newStream(highest) // the lowest number
	s.check("ask for the priorities of streams", err)
	return s
}

func (d *Device) newStream(priority int) *Stream {
	s := &Stream{d: d}
	var err error
	if s.s, err = cu.MakeStreamWithPriority(priority, cu.NonBlocking); err != nil {
		s.Fail(fmt.Errorf("cuda: make a stream: %w", explain(err)))
		return s
	}
	d.streams = append(d.streams, s)
	s.anchor()
	return s
}
