package comm

import (
	"math/bits"

	"dynmo/src/tensor"
)

const (
	// smallestBlock is the length of a frame. Blocks above largestKept are rare (states,
	// checkpoints) and go back to the system at once.
	smallestBlock = frameBytes
	largestKept   = 20 // log2 of bytes: 1 MiB
)

// staging keeps blocks of transfer memory for messages of bytes. A transfer may outlive the call that
// begins it, so its memory cannot be Go's.
type staging struct {
	t    Transport
	kept [largestKept + 1][]tensor.Mem // free blocks by log2 of their size
}

// get returns a block of at least some bytes.
func (s *staging) get(length int64) (tensor.Mem, error) {
	class := sizeClass(length)
	if class < len(s.kept) {
		if free := s.kept[class]; len(free) > 0 {
			s.kept[class] = free[:len(free)-1]
			return free[len(free)-1], nil
		}
		length = 1 << class
	}
	return s.t.Alloc(length)
}

// put takes back a block of get.
func (s *staging) put(m tensor.Mem) {
	if class := sizeClass(m.Bytes); class < len(s.kept) {
		s.kept[class] = append(s.kept[class], m)
		return
	}
	s.t.Free(m)
}

// free gives all blocks back to the system.
func (s *staging) free() {
	for class, blocks := range s.kept {
		for _, m := range blocks {
			s.t.Free(m)
		}
		s.kept[class] = nil
	}
}

// sizeClass returns the log2 of the smallest block of at least length bytes.
func sizeClass(length int64) int {
	return bits.Len64(uint64(max(length, smallestBlock)) - 1)
}
