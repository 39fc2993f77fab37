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
