package device

import (
	"fmt"
	"slices"

	"dynmo/src/tensor"
)

// TakeSmallest removes the smallest span with at least this number of bytes from a list and returns
// it. It returns an absent Mem if there is none.
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

// AllocAside returns zeroed host memory for data that the device rarely needs. If the device's own
// memory is host memory, it is ordinary memory of the device, and Used counts it.
func AllocAside(d Device, bytes int64) (tensor.Mem, error) {
	if d.Space() == tensor.Host {
		return d.Alloc(bytes)
	}
	return d.AllocHost(bytes)
}

// FreeAside frees memory from AllocAside.
func FreeAside(d Device, m tensor.Mem) {
	if d.Space() == tensor.Host {
		d.Free(m)
	} else {
		d.FreeHost(m)
	}
}

// Read returns the contents of m in host memory: m itself if it is host memory, else a copy. No
// work on m may be in progress.
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

// Mirror returns host memory in which to prepare the contents of m for Write: m itself if it is
// host memory, else zeroed memory of the same size.
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

// copied copies src to dst and waits until the copy is done.
func copied(d Device, dst, src tensor.Mem) error {
	s := d.NewStream()
	defer s.Close()
	s.Copy(dst, src)
	return s.Sync()
}
