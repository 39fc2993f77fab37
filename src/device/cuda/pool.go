//go:build cuda && cgo

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"gorgonia.org/cu"

	"dynmo/src/tensor"
)

const (
	// granule is the unit to which sizes are rounded up, so that layers of almost equal size can
	// reuse each other's memory. The driver's alignment is at least as large.
	granule = 512
	// keptFor is the number of Syncs of the main stream for which freed memory is kept. A
	// step finds the memory that the step before it freed. Memory of a layer that has left
	// is unused for two steps and then goes back to the GPU.
	keptFor = 2
)

// block is freed memory that is kept for reuse.
type block struct {
	ptr   unsafe.Pointer
	bytes int64
	age   int  // Syncs of the main stream since it was freed
	idle  bool // whether no stream can be using it
}

// pool keeps freed memory for reuse, because the driver's own calls wait for the whole GPU.
type pool struct {
	live map[unsafe.Pointer]int64 // bytes of each block in use
	used int64                    // bytes requested and not freed
	kept []block
}

// Used returns the bytes allocated and not freed.
func (d *Device) Used() int64 { return d.pool.used }

// Kept returns the bytes that were freed and are kept for reuse. Used does not count them.
func (d *Device) Kept() int64 {
	bytes := int64(0)
	for _, b := range d.pool.kept {
		bytes += b.bytes
	}
	return bytes
}

// Recycle does nothing: freed memory is always kept for some time.
func (d *Device) Recycle(bool) {}

// Alloc returns zeroed memory, from kept memory if possible.
func (d *Device) Alloc(bytes int64) (tensor.Mem, error) {
	if bytes == 0 {
		return tensor.Mem{}, nil
	}
	b, err := d.take((bytes + granule - 1) / granule * granule)
	if err != nil {
		return tensor.Mem{}, d.full(bytes, err)
	}
	d.pool.live[b.ptr] = b.bytes
	m := tensor.Mem{Ptr: b.ptr, Bytes: bytes, Space: tensor.Device}
	d.pool.used += bytes
	err = errors.Join(cu.MemsetD8Async(address(b.ptr), 0, b.bytes, d.fill), d.fill.Synchronize())
	if err != nil {
		d.Free(m)
		return tensor.Mem{}, fmt.Errorf("cuda: zero %d bytes of new memory: %w", bytes, explain(err))
	}
	return m, nil
}

// take returns a block with at least this number of bytes, a multiple of the granule.
func (d *Device) take(bytes int64) (block, error) {
	b, ok := d.pool.best(bytes)
	if !ok && len(d.pool.kept) > 0 && d.quiet() { // for example between two layouts of buffers
		d.pool.rest()
		b, ok = d.pool.best(bytes)
	}
	if ok {
		return b, nil
	}
	p, err := cu.MemAlloc(bytes)
	if errors.Is(err, cu.OutOfMemory) && len(d.pool.kept) > 0 {
		d.Trim() // the GPU may have room once the kept memory is freed
		p, err = cu.MemAlloc(bytes)
	}
	return block{ptr: *(*unsafe.Pointer)(unsafe.Pointer(&p)), bytes: bytes}, err
}

// full returns the error of a failed allocation, with the memory in use.
func (d *Device) full(bytes int64, err error) error {
	free, total, unknown := cu.MemInfo()
	if unknown != nil {
		return fmt.Errorf("cuda: allocate %d bytes (%d in use here): %w", bytes, d.pool.used, explain(err))
	}
	return fmt.Errorf("cuda: allocate %d bytes on %s: %w: %d of its %d bytes are free, %d are in use here",
		bytes, d.about.Name, explain(err), free, total, d.pool.used)
}

// Free keeps memory from Alloc for a later Alloc.
func (d *Device) Free(m tensor.Mem) {
	if m.IsZero() {
		return
	}
	bytes, ok := d.pool.live[m.Ptr]
	if !ok {
		panic("cuda: Free of memory that Alloc did not give")
	}
	delete(d.pool.live, m.Ptr)
	d.pool.used -= m.Bytes
	d.pool.kept = append(d.pool.kept, block{ptr: m.Ptr, bytes: bytes})
}

// Trim waits for all work of the GPU and frees all kept memory.
func (d *Device) Trim() {
	_ = cu.Synchronize() // the next Sync returns an error too
	d.pool.trim()
}

// synced raises the age of every kept block, after a Sync of the main stream. Another stream may
// still use a block. synced does not wait for that stream: it may wait for another rank, which may
// wait for this rank.
func (d *Device) synced() {
	if len(d.pool.kept) == 0 {
		return
	}
	for i := range d.pool.kept {
		d.pool.kept[i].age++
	}
	if d.quiet() { // else the driver's call would wait for the streams
		d.pool.rest()
		d.pool.drop(func(b block) bool { return b.age >= keptFor })
	}
}

// quiet reports whether all streams have done all their work. It does not wait.
func (d *Device) quiet() bool {
	return !slices.ContainsFunc(d.streams, func(s *Stream) bool { return s.s.Query() != nil })
}

// rest marks all blocks as unused by streams.
func (p *pool) rest() {
	for i := range p.kept {
		p.kept[i].idle = true
	}
}

// best takes the smallest unused block with room for bytes, but with at most an eighth more.
func (p *pool) best(bytes int64) (block, bool) {
	best := -1
	for i, b := range p.kept {
		if b.idle && b.bytes >= bytes && b.bytes <= bytes+bytes/8 && (best < 0 || b.bytes < p.kept[best].bytes) {
			best = i
		}
	}
	if best < 0 {
		return block{}, false
	}
	b := p.kept[best]
	p.kept = slices.Delete(p.kept, best, best+1)
	return b, true
}

func (p *pool) trim() { p.drop(func(block) bool { return true }) }

// drop frees the kept blocks that chosen selects.
func (p *pool) drop(chosen func(block) bool) {
	p.kept = slices.DeleteFunc(p.kept, func(b block) bool {
		if !chosen(b) {
			return false
		}
		_ = cu.MemFree(address(b.ptr))
		return true
	})
}

// address returns the address of memory in the driver's type.
func address(p unsafe.Pointer) cu.DevicePtr { return cu.DevicePtr(uintptr(p)) }
