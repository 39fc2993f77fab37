//go:build cuda && cgo

package cuda

import (
	"cmp"
	"slices"
	"unsafe"

	"dynmo/src/tensor"
)

// pinned is the spans from AllocHost, sorted by address.
type pinned []tensor.Mem

func (p pinned) find(address unsafe.Pointer) (int, bool) {
	return slices.BinarySearchFunc(p, address, func(m tensor.Mem, address unsafe.Pointer) int {
		return cmp.Compare(uintptr(m.Ptr), uintptr(address))
	})
}

func (p *pinned) add(m tensor.Mem) {
	i, _ := p.find(m.Ptr)
	*p = slices.Insert(*p, i, m)
}

func (p *pinned) remove(m tensor.Mem) {
	i, ok := p.find(m.Ptr)
	if !ok {
		panic("cuda: FreeHost of memory that AllocHost did not give")
	}
	*p = slices.Delete(*p, i, i+1)
}

// holds reports whether m lies within one of the spans.
func (p pinned) holds(m tensor.Mem) bool {
	i, ok := p.find(m.Ptr)
	if !ok {
		i-- // the span before
	}
	return i >= 0 && uintptr(m.Ptr)+uintptr(m.Bytes) <= uintptr(p[i].Ptr)+uintptr(p[i].Bytes)
}
