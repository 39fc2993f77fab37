package device

import (
	"fmt"
	"slices"

	"dynmo/src/tensor"
)

// TakeSmallest removes the smallest span with room for some bytes from a list and
// returns it; absent if there is none.
func TakeSmallest(list *[]tensor.Mem, bytes int64) tensor.Mem {
	best := -1
	for i, m := range *list {
		if m.Bytes >= bytes && (best < 0 || m.Bytes < (*list)[best].Bytes) {
			best = i
		}
	}
	if best < 0 {
		return tensor.Mem{}
	}
	m := (*list)[best]
	*list = slices.Delete(*list, best, best+1)
	return m
}

// AllocAside returns zeroed memory of the host for what the device needs seldom. Where the
// device's own memory is the host's it is that, and Used counts it.
func AllocAside(d Device, bytes int64) (tensor.Mem, error) {
	if d.Space() == tensor.Host {
		return d.Alloc(bytes)
	}
	return d.AllocHost(bytes)
}

// FreeAside returns memory that AllocAside gave.
func FreeAside(d Device, m tensor.Mem) {
	if d.Space() == tensor.Host {
		d.Free(m)
	} else {
		d.FreeHost(m)
	}
}

// Read returns the contents of m in host memory: m itself if it is host memory,
// else a copy. No work on m may be under way.
func Read(d Device, m tensor.Mem) (tensor.Mem, error) {
	if m.Bytes == 0 || m.Space == tensor.Host {
		return m, nil
	}
	host := Mirror(m)
	if err := copied(d, host, m); err != nil {
		return tensor.Mem{}, fmt.Errorf("read %d bytes of the device: %w", m.Bytes, err)
	}
	return host, nil
}

// Mirror returns host memory in which to prepare the contents of m for Write: m
// itself if it is host memory, else as much, zeroed.
func Mirror(m tensor.Mem) tensor.Mem {
	if m.Bytes == 0 || m.Space == tensor.Host {
		return m
	}
	words := tensor.From(make([]uint64, (m.Bytes+7)/8)) // aligned for every element type
	return words.Span(0, m.Bytes)
}

// Write copies the Mirror of m into m.
func Write(d Device, m, mirror tensor.Mem) error {
	if m.Ptr == mirror.Ptr {
		return nil
	}
	if err := copied(d, m, mirror); err != nil {
		return fmt.Errorf("write %d bytes to the device: %w", m.Bytes, err)
	}
	return nil
}

// copied copies and waits.
func copied(d Device, dst, src tensor.Mem) error {
	s := d.NewStream()
	defer s.Close()
	s.Copy(dst, src)
	return s.Sync()
}
