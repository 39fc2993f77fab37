package cpu

import (
	"testing"

	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/tensor"
)

// alloc allocates or ends the test.
func alloc(t *testing.T, d *Device, bytes int64) tensor.Mem {
	t.Helper()
	m, err := d.Alloc(bytes)
	expect.OK(t, err)
	return m
}

// Memory freed in one round of Recycle is used again in the next, as it is, and
// not in the round after that.
func TestRecycle(t *testing.T) {
	d := New(device.NewWall())
	large, small := alloc(t, d, 1<<20), alloc(t, d, 100)
	tensor.Of[byte](large)[5], tensor.Of[byte](small)[5] = 7, 8

	d.Recycle(true)
	d.Free(large)
	d.Free(small)
	if m := alloc(t, d, 100); m.Ptr == small.Ptr {
		t.Error("memory was used again in the round that freed it")
	}
	d.Recycle(false)
	if want := int64(1<<20 + 100); d.Kept() != want {
		t.Errorf("%d bytes kept, want %d", d.Kept(), want)
	}
	if m := alloc(t, d, 100); m.Ptr == small.Ptr || tensor.Of[byte](m)[5] != 0 {
		t.Error("memory was used again outside a round")
	}

	d.Recycle(true)
	if m := alloc(t, d, 99); m.Ptr != small.Ptr || m.Bytes != 99 || tensor.Of[byte](m)[5] != 8 {
		t.Error("the smallest memory with room was not used again")
	}
	part := alloc(t, d, 5000)
	if part.Ptr != large.Ptr || part.Bytes != 5000 || tensor.Of[byte](part)[5] != 7 {
		t.Error("the front of larger memory was not used again")
	}
	if m := alloc(t, d, 5000); tensor.Of[byte](m)[5] != 0 {
		t.Error("memory was used twice")
	}
	d.Free(part)
	d.Recycle(false)

	d.Recycle(true)
	d.Recycle(false) // not used: the system has it back
	d.Recycle(true)
	if m := alloc(t, d, 5000); tensor.Of[byte](m)[5] != 0 {
		t.Error("memory outlived a round that did not use it")
	}
	d.Free(alloc(t, d, 1<<20))
	d.Recycle(false)
	if d.Kept() != 1<<20 {
		t.Errorf("%d bytes kept, want %d", d.Kept(), 1<<20)
	}
	if _, err := d.Alloc(1 << 60); err == nil || d.Kept() != 0 {
		t.Errorf("error %v of an exabyte, and %d bytes still kept", err, d.Kept())
	}
	if want := int64(100 + 100 + 99 + 5000 + 5000); d.Used() != want {
		t.Errorf("%d bytes in use, want %d", d.Used(), want)
	}
}

// Trim and Close give the system what is kept.
func TestTrim(t *testing.T) {
	for name, trim := range map[string]func(*Device) error{
		"trim":  func(d *Device) error { d.Trim(); return nil },
		"close": (*Device).Close,
	} {
		d := New(device.NewWall())
		m, err := d.Alloc(10_000)
		expect.OK(t, err)
		d.Recycle(true)
		d.Free(m)
		if d.Kept() != 10_000 {
			t.Errorf("%s: %d bytes are kept, want 10000", name, d.Kept())
		}
		if err := trim(d); err != nil || d.Kept() != 0 {
			t.Errorf("%s: %d bytes are kept afterwards, %v", name, d.Kept(), err)
		}
	}
}

// A stream that captures nothing makes the calls at each launch, not before.
func TestCapture(t *testing.T) {
	calls := 0
	g := New(device.NewWall()).NewStream().Capture(func() { calls++ })
	before := calls
	g.Launch()
	g.Launch()
	g.Close()
	if before != 0 || calls != 2 {
		t.Errorf("%d calls before the first launch, %d after the second, want 0 and 2", before, calls)
	}
}

// TestRecycleMapsNoMore: an allocation that maps gives back memory that is too small
// for it, so that a move of layers maps no more than before.
func TestRecycleMapsNoMore(t *testing.T) {
	d := New(device.NewWall())
	list := []tensor.Mem{alloc(t, d, 1<<20), alloc(t, d, 1<<20), alloc(t, d, 1<<20)}
	d.Recycle(true)
	for _, m := range list {
		d.Free(m)
	}
	d.Recycle(true)
	for i, c := range []struct{ bytes, kept int64 }{
		{100, 2 << 20}, // the rest of a span is given back with it
		{1<<20 + 1, 0},
		{1 << 20, 0},
	} {
		if alloc(t, d, c.bytes); d.Kept() != c.kept {
			t.Errorf("allocation %d: %d bytes are kept, want %d", i, d.Kept(), c.kept)
		}
	}
	d.Recycle(false)
	if d.Kept() != 0 {
		t.Errorf("%d bytes are kept after the round, want 0", d.Kept())
	}
}
