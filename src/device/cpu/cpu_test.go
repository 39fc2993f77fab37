package cpu

import (
	"testing"

	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/tensor"
)

func TestMemory(t *testing.T) {
	d := New(device.NewWall())
	var mem []tensor.Mem
	for _, bytes := range []int64{1, 63, 64, 4097, 1 << 20} {
		m, err := d.Alloc(bytes)
		expect.OK(t, err)
		if m.Bytes != bytes || uintptr(m.Ptr)%64 != 0 || m.Space != tensor.Host {
			t.Errorf("%d bytes: %+v", bytes, m)
		}
		for i, b := range tensor.Of[byte](m) {
			if b != 0 {
				t.Fatalf("%d bytes: byte %d is %d, want 0", bytes, i, b)
			}
			tensor.Of[byte](m)[i] = 0xff
		}
		mem = append(mem, m)
	}
	for _, m := range mem {
		d.Free(m)
	}
	d.Free(tensor.Mem{})
	if d.Used() != 0 {
		t.Errorf("%d bytes in use after everything was freed", d.Used())
	}
	if m, err := d.Alloc(0); err != nil || !m.IsZero() {
		t.Errorf("no bytes: %+v, %v", m, err)
	}
	if _, err := d.Alloc(1 << 62); err == nil {
		t.Error("4 EiB were allocated")
	}
}

func TestStream(t *testing.T) {
	d := New(device.NewWall())
	s := d.NewStream()
	a, b := []int32{1, 2, 3}, make([]int32, 3)
	first := s.Record(nil)
	s.Copy(tensor.From(b), tensor.From(a))
	s.Zero(tensor.From(a))
	last := s.Record(nil)
	expect.OK(t, s.Sync())
	if b[2] != 3 || a[0] != 0 {
		t.Errorf("copied %v, cleared %v", b, a)
	}
	if last.Seconds() < first.Seconds() {
		t.Error("events run backwards")
	}
}

// TestSparseMemory: memory that a stream sets to zero reads as zero, in whole pages and in the rest
// of the first and last page. Memory beside it is unchanged. An allocation may exceed the memory of
// any host.
func TestSparseMemory(t *testing.T) {
	d := NewSparse(device.NewWall())
	m, err := d.Alloc(1 << 42)
	expect.OK(t, err)
	defer d.Free(m)
	const bytes = 5 * 4096
	b := tensor.Of[byte](m.Span(0, bytes))
	for _, part := range [][2]int64{{0, bytes}, {100, bytes - 300}, {4096, 4096}, {50, 40}, {4000, 200}} {
		for i := range b {
			b[i] = 1
		}
		d.NewStream().Zero(m.Span(part[0], part[1]))
		for i, x := range b {
			inside := int64(i) >= part[0] && int64(i) < part[0]+part[1]
			if (x == 0) != inside {
				t.Fatalf("bytes %v made zero: byte %d is %d", part, i, x)
			}
		}
	}
}
