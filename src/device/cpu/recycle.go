package cpu

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Recycle(true) makes Free keep memory, and makes Alloc return kept memory with its old contents.
// It is for buffers that are written before they are read. Mapping and zeroing new pages takes as
// long as moving a layer. For all buffers of a pipeline it takes longer than the other work of a
// move. When Alloc maps new memory it gives the same bytes of unsuitable kept memory to the system.
// So the process never maps more than when the memory was freed. Recycle(false) ends this mode and
// frees kept memory that is not used. So no more memory is idle than was freed in between.
func (d *Device) Recycle(on bool) {
	d.recycling = on
	if on {
		d.spare, d.kept = append(d.spare, d.kept...), nil
		return
	}
	for _, m := range d.spare {
		unmap(m)
	}
	d.spare = nil
}

// Kept returns the bytes that are kept for a later Recycle(true). Used does not count them.
func (d *Device) Kept() int64 {
	bytes := int64(0)
	for _, m := range slices.Concat(d.kept, d.spare) {
		bytes += m.Bytes
	}
	return bytes
}

// Trim frees all kept memory.
func (d *Device) Trim() {
	for _, m := range slices.Concat(d.kept, d.spare) {
		unmap(m)
	}
	d.kept, d.spare = nil, nil
}

// reuse returns the smallest spare memory with room for some bytes, and frees its unneeded pages.
// If there is none it returns an absent Mem, and frees the same number of bytes of the other spare
// memory.
func (d *Device) reuse(bytes int64) tensor.Mem {
	m := device.TakeSmallest(&d.spare, bytes)
	if m.IsZero() {
		d.yield(bytes)
		return m
	}
	if used := pages(bytes); used < m.Bytes {
		unmap(m.Span(used, m.Bytes-used))
	}
	return m.Span(0, bytes)
}

// yield frees the given bytes of spare memory, or all of it if there is less.
func (d *Device) yield(bytes int64) {
	for bytes > 0 && len(d.spare) > 0 {
		last := len(d.spare) - 1
		m := d.spare[last]
		unmap(m)
		bytes -= m.Bytes
		d.spare = d.spare[:last]
	}
}

// pages rounds bytes up to whole pages.
func pages(bytes int64) int64 {
	page := int64(os.Getpagesize())
	return (bytes + page - 1) / page * page
}

// unmap returns whole pages to the system.
func unmap(m tensor.Mem) {
	if err := unix.MunmapPtr(m.Ptr, uintptr(m.Bytes)); err != nil {
		panic("cpu: Free of memory that Alloc did not give")
	}
}
