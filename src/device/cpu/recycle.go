package cpu

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
	"dynmo/src/tensor"
)

// Recycle(true) makes Free keep memory for a later Recycle(true), after which Alloc
// returns such memory as it is: for layers that take the place of others and are
// written before they are read. Mapping new pages and zeroing them takes as long as
// a layer's journey. Recycle(false) ends that, and gives the system the memory kept
// before and not used, so that no more memory is idle than was freed in between.
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
// the system the pages it has too many; absent if there is none.
func (d *Device) reuse(bytes int64) tensor.Mem {
	m := device.TakeSmallest(&d.spare, bytes)
	if m.IsZero() {
		return m
	}
	page := int64(os.Getpagesize())
	if used := (bytes + page - 1) / page * page; used < m.Bytes {
		unmap(m.Span(used, m.Bytes-used))
	}
	return m.Span(0, bytes)
}

// unmap gives whole pages back to the system.
func unmap(m tensor.Mem) {
	if err := unix.MunmapPtr(m.Ptr, uintptr(m.Bytes)); err != nil {
		panic("cpu: Free of memory that Alloc did not give")
	}
}
