package cpu

import (
	"cmp"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"dynmo/src/tensor"
)

// Recycle(true) begins a round: Free keeps memory, and Alloc returns kept memory with its old
// contents. It is for buffers that are written before they are read. Mapping and clearing new pages
// takes as long as moving a layer. For all buffers of a pipeline it takes longer than the other work
// of a move. When Alloc maps new pages it returns as many kept pages to the system. So the process
// never maps more than when the memory was freed. Recycle(false) ends the round. After a round that
// allocated memory, no more memory is kept than was freed in the round.
func (d *Device) Recycle(on bool) {
	d.recycling = on
	if on {
		d.freed, d.allocated = 0, false
	} else if d.allocated {
		d.kept.release(d.kept.bytes() - d.freed)
	}
}

// Kept returns the bytes of the pages that are kept for a later Alloc. Used does not count them.
func (d *Device) Kept() int64 { return d.kept.bytes() }

// Trim frees all kept memory.
func (d *Device) Trim() { d.kept.release(d.kept.bytes()) }

// keep keeps freed memory.
func (d *Device) keep(m tensor.Mem) {
	m.Bytes = pages(m.Bytes)
	d.freed += m.Bytes
	d.kept.add(m)
}

// reuse returns kept memory. If less is kept, it returns that to the system, and an absent Mem.
func (d *Device) reuse(bytes int64) tensor.Mem {
	d.allocated = true
	size := pages(bytes)
	m := d.kept.take(size)
	if m.IsZero() {
		m = d.gather(size)
	}
	if m.IsZero() {
		d.kept.release(size)
		return m
	}
	return m.Span(0, bytes)
}

// mostMoved is how often gather may move pages. Each time the system has one or two more maps to
// keep, and Linux allows a process 65,530.
const mostMoved = 1 << 14

// gather returns memory to which it has moved the pages of several kept ranges. It returns an absent
// Mem if fewer bytes are kept, or if the system cannot move them.
func (d *Device) gather(bytes int64) tensor.Mem {
	if d.kept.bytes() < bytes || d.moved >= mostMoved {
		return tensor.Mem{}
	}
	p, err := d.mapped(bytes)
	if err != nil {
		return tensor.Mem{}
	}
	m := tensor.Mem{Ptr: p, Bytes: bytes, Space: tensor.Host}
	for end := int64(0); end < bytes; d.moved++ {
		part := d.kept.cut(bytes - end)
		to, size := m.Span(end, part.Bytes), uintptr(part.Bytes)
		if _, err := unix.MremapPtr(part.Ptr, size, to.Ptr, size, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED); err != nil {
			// Linux before 6.17 does not move a range of several maps, and may have unmapped `to`.
			d.moved = mostMoved
			unmap(part)
			unmap(m.Span(0, end))
			unmap(m.Span(end+part.Bytes, bytes-end-part.Bytes))
			return tensor.Mem{}
		}
		end += part.Bytes
	}
	return m
}

// ranges is unused memory in whole pages, ascending by address. No two ranges touch.
type ranges []tensor.Mem

// add adds memory and joins it with its neighbours. Neighbours are common: the system maps the
// memory of successive calls side by side.
func (r *ranges) add(m tensor.Mem) {
	at, _ := slices.BinarySearchFunc(*r, m, func(a, b tensor.Mem) int { return cmp.Compare(uintptr(a.Ptr), uintptr(b.Ptr)) })
	end := at
	if at > 0 && endsAt((*r)[at-1], m) {
		at--
		m.Ptr, m.Bytes = (*r)[at].Ptr, (*r)[at].Bytes+m.Bytes
	}
	if end < len(*r) && endsAt(m, (*r)[end]) {
		m.Bytes += (*r)[end].Bytes
		end++
	}
	*r = slices.Replace(*r, at, end, m)
}

// endsAt reports whether b begins where a ends.
func endsAt(a, b tensor.Mem) bool { return unsafe.Add(a.Ptr, a.Bytes) == b.Ptr }

// take removes the given bytes from the smallest range that has as many, and returns them. It
// returns an absent Mem if no range has.
func (r *ranges) take(bytes int64) tensor.Mem {
	best := -1
	for i, m := range *r {
		if m.Bytes >= bytes && (best < 0 || m.Bytes < (*r)[best].Bytes) {
			best = i
		}
	}
	if best < 0 {
		return tensor.Mem{}
	}
	m := (*r)[best]
	if m.Bytes == bytes {
		*r = slices.Delete(*r, best, best+1)
	} else {
		(*r)[best] = m.Span(bytes, m.Bytes-bytes)
	}
	return m.Span(0, bytes)
}

// cut removes the given bytes from the end of the last range, or all of it if it is shorter, and
// returns them.
func (r *ranges) cut(bytes int64) tensor.Mem {
	last := len(*r) - 1
	m := (*r)[last]
	if m.Bytes <= bytes {
		*r = (*r)[:last]
		return m
	}
	(*r)[last] = m.Span(0, m.Bytes-bytes)
	return m.Span(m.Bytes-bytes, bytes)
}

// release returns the given bytes to the system, or all if there are fewer.
func (r *ranges) release(bytes int64) {
	for bytes > 0 && len(*r) > 0 {
		m := r.cut(bytes)
		unmap(m)
		bytes -= m.Bytes
	}
}

func (r ranges) bytes() (sum int64) {
	for _, m := range r {
		sum += m.Bytes
	}
	return sum
}

// pages rounds bytes up to whole pages.
func pages(bytes int64) int64 {
	page := int64(os.Getpagesize())
	return (bytes + page - 1) / page * page
}

// unmap returns whole pages to the system.
func unmap(m tensor.Mem) {
	if m.Bytes == 0 {
		return
	}
	if err := unix.MunmapPtr(m.Ptr, uintptr(m.Bytes)); err != nil {
		panic("cpu: Free of memory that Alloc did not give")
	}
}
