package cpu

import (
	"os"
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

// Memory freed in a round of Recycle is used again in this round and in the next one that allocates, as
// it is. Then it is kept only up to the bytes that the round freed.
func TestRecycle(t *testing.T) {
	d := New(device.NewWall())
	page := int64(os.Getpagesize())
	large, small := alloc(t, d, 1<<20), alloc(t, d, 100)
	tensor.Of[byte](large)[5], tensor.Of[byte](small)[5] = 7, 8
	d.Recycle(true)
	d.Free(small)
	if m := alloc(t, d, 99); m.Ptr != small.Ptr || m.Bytes != 99 || tensor.Of[byte](m)[5] != 8 {
		t.Error("memory was not used again in the round that freed it")
	}
	d.Free(large)
	d.Recycle(false)
	if want := int64(1 << 20); d.Kept() != want {
		t.Errorf("%d bytes kept, want %d", d.Kept(), want)
	}
	if m := alloc(t, d, 5000); tensor.Of[byte](m)[5] != 0 {
		t.Error("memory was used again outside a round")
	}

	d.Recycle(true)
	d.Recycle(false)
	if d.Kept() != 1<<20 {
		t.Error("a round that allocates nothing does not keep the memory of the round before it")
	}

	d.Recycle(true)
	part := alloc(t, d, 5000)
	if part.Ptr != large.Ptr || part.Bytes != 5000 || tensor.Of[byte](part)[5] != 7 {
		t.Error("the front of larger memory was not used again")
	}
	rest := alloc(t, d, 1<<20-pages(5000))
	if rest.Ptr != large.Span(pages(5000), 0).Ptr {
		t.Error("the rest of larger memory was not used again")
	}
	if m := alloc(t, d, 5000); tensor.Of[byte](m)[5] != 0 {
		t.Error("memory was used twice")
	}
	d.Free(part)
	d.Recycle(false)
	if want := pages(5000); d.Kept() != want {
		t.Errorf("%d bytes kept, want %d", d.Kept(), want)
	}

	d.Recycle(true)
	d.Free(rest)
	alloc(t, d, page)
	d.Recycle(true)
	alloc(t, d, page)
	d.Recycle(false)
	if d.Kept() != 0 {
		t.Errorf("%d bytes outlived a round that did not use them", d.Kept())
	}
	if _, err := d.Alloc(1 << 60); err == nil {
		t.Error("no error of an exabyte")
	}
	if want := int64(99 + 5000 + 5000 + 2*page); d.Used() != want {
		t.Errorf("%d bytes in use, want %d", d.Used(), want)
	}
}

// An allocation that the system refuses is tried again without the kept memory.
func TestRecycleYields(t *testing.T) {
	d := New(device.NewWall())
	m := alloc(t, d, 1<<20)
	d.Recycle(true)
	d.Free(m)
	d.Recycle(false)
	if _, err := d.Alloc(1 << 60); err == nil || d.Kept() != 0 {
		t.Errorf("error %v of an exabyte, and %d bytes still kept", err, d.Kept())
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
		if want := pages(10_000); d.Kept() != want {
			t.Errorf("%s: %d bytes are kept, want %d", name, d.Kept(), want)
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

// TestRecycleJoins: memory for which no kept range has room has the pages of several ranges, with their
// contents, as long as enough is kept. Neighbours are one range.
func TestRecycleJoins(t *testing.T) {
	d := New(device.NewWall())
	page := int64(os.Getpagesize())
	all := alloc(t, d, 7*page)
	for i, b := range tensor.Of[byte](all) {
		tensor.Of[byte](all)[i] = b + byte(1+int64(i)/page)
	}
	d.used = 0 // its pages are freed one by one
	d.Recycle(true)
	for _, i := range []int64{0, 2, 1, 4, 6} {
		d.Free(all.Span(i*page, page))
	}
	if m := d.kept.take(3 * page); m.Ptr != all.Ptr { // 0, 1 and 2 touch
		t.Fatalf("%v is kept, want %v first", d.kept, all.Span(0, 3*page))
	}
	m := alloc(t, d, 2*page)
	values := tensor.Of[byte](m)
	if d.moved != 2 || d.Kept() != 0 || values[0]+values[page] != 5+7 {
		t.Errorf("%d ranges were moved, %d bytes are kept, pages have %d and %d; want pages 5 and 7", d.moved, d.Kept(), values[0], values[page])
	}
	d.Free(m)
	d.moved = mostMoved
	d.Free(all.Span(3*page, page))
	if alloc(t, d, 4*page); d.Kept() != 0 {
		t.Errorf("%d bytes are kept besides new memory", d.Kept())
	}
}

// TestRecycleMapsNoMore: an allocation that maps returns as much kept memory, so that a move of layers
// maps no more than before.
func TestRecycleMapsNoMore(t *testing.T) {
	d := New(device.NewWall())
	m := alloc(t, d, 3<<20)
	d.Recycle(true)
	d.Free(m)
	for i, c := range []struct{ bytes, kept int64 }{
		{100, 3<<20 - pages(100)},
		{2<<20 + 1, 3<<20 - pages(100) - pages(2<<20+1)},
		{1 << 20, 0}, // less is kept
	} {
		if alloc(t, d, c.bytes); d.Kept() != c.kept {
			t.Errorf("allocation %d: %d bytes are kept, want %d", i, d.Kept(), c.kept)
		}
	}
}

// TestRecycleWithoutMoves: if the system cannot move pages, new memory is mapped.
func TestRecycleWithoutMoves(t *testing.T) {
	d := New(device.NewWall())
	page := int64(os.Getpagesize())
	apart := alloc(t, d, 3*page)
	unmap(apart.Span(page, 2*page)) // so that the system cannot move page 2
	d.kept = ranges{apart.Span(0, page), apart.Span(2*page, page)}
	d.Recycle(true)
	m := alloc(t, d, 2*page)
	if d.moved != mostMoved || d.Kept() != 0 {
		t.Errorf("%d moves, %d bytes are kept; want no more moves, and nothing kept", d.moved, d.Kept())
	}
	for i := range tensor.Of[byte](m) {
		tensor.Of[byte](m)[i]++ // the memory is there
	}
}
