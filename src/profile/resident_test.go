package profile

import (
	"runtime"
	"testing"

	"dynmo/src/expect"

	"golang.org/x/sys/unix"
)

// TestAnonymousSeesMemory: pages count once they are touched, and no more once
// they are given back.
func TestAnonymousSeesMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no /proc/self/status")
	}
	const size, slack = 64 << 20, 16 << 20
	before := Anonymous()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	expect.OK(t, err)
	for i := 0; i < size; i += 4096 {
		b[i] = 1
	}
	if got := Anonymous() - before; got < size-slack || got > size+slack {
		t.Errorf("%d bytes more with %d touched", got, size)
	}
	expect.OK(t, unix.Munmap(b))
	if got := Anonymous() - before; got > slack {
		t.Errorf("%d bytes more after all were given back", got)
	}
}
