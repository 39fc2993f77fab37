package cpu

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Recycle(true) makes Free keep memory, and Alloc return what had been kept before, as
// it is: for what is written before it is read. Mapping new pages and zeroing them takes
// as long as a layer's journey, and longer than a move's other work for all buffers of a
// pipeline. Alloc gives the system as much of what it cannot use as it maps, so that no
// more is mapped than when the memory was freed. Recycle(false) ends that, and gives the
// system the memory kept before and not used, so that no more memory is idle than was
// freed in between.
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

// Kept returns the bytes that are kept for a later Recycle(true), which Used
// does not count.
func (d *Device) Kept() int64 {
	bytes := int64(0)
	for _, m := range slices.Concat(d.kept, d.spare) {
		bytes += m.Bytes
	}
	return bytes
}

// Trim gives the system all memory that is kept.
func (d *Device) Trim() {
	for _, m := range slices.Concat(d.kept, d.spare) {
		unmap(m)
	}
	d.kept, d.spare = nil, nil
}

// reuse returns the smallest spare memory with room for some bytes, and gives
// the system the pages it has too many. If there is none it is absent, and the system
// gets as many bytes of the others.
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

// yield gives the system so many bytes of spare memory, or all there is.
func (d *Device) yield(bytes int64) {
	for bytes > 0 && len(d.spare) > 0 {
		last := len(d.spare) - 1
		m := d.spare[last]
		unmap(m)
		bytes -= m.Bytes
		d.spare = d.spare[:last]
	}
}

// pages returns the bytes of the pages that some bytes take.
func pages(bytes int64) int64 {
	page := int64(os.Getpagesize())
	return (bytes + page - 1) / page * page
}

// unmap gives whole pages back to the system.
func unmap(m tensor.Mem) {
	if err := unix.MunmapPtr(m.Ptr, uintptr(m.Bytes)); err != nil {
		panic("cpu: Free of memory that Alloc did not give")
	}
}
