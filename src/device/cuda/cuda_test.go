//go:build cuda && cgo

package cuda_test

import (
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"dynmo/src/device"
	"dynmo/src/device/cuda"
	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/expect"
	"dynmo/src/tensor"
)

// alloc allocates or ends the test, at whose end the memory is freed.
func alloc(t *testing.T, d *cuda.Device, bytes int64) tensor.Mem {
	t.Helper()
	m := take(t, d, bytes)
	t.Cleanup(func() { d.Free(m) })
	return m
}

func take(t *testing.T, d *cuda.Device, bytes int64) tensor.Mem {
	t.Helper()
	m, err := d.Alloc(bytes)
	expect.OK(t, err)
	return m
}

func sync(t *testing.T, s device.Stream) {
	t.Helper()
	expect.OK(t, s.Sync())
}

// pattern returns bytes without a repeated segment.
func pattern(n int64) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*i>>7 + i)
	}
	return p
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: byte %d is %d, want %d", what, i, got[i], want[i])
		}
	}
}

// holds compares the contents of memory, as a stream sees them, with the wanted contents.
func holds(t *testing.T, what string, s device.Stream, m tensor.Mem, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	for i := range got {
		got[i] = ^want[i] // so that a copy that does nothing shows
	}
	s.Copy(tensor.From(got), m)
	sync(t, s)
	same(t, what, got, want)
}

func TestMemory(t *testing.T) {
	d := cudatest.New(t)
	s := d.NewStream()
	used := int64(0)
	for _, bytes := range []int64{1, 63, 512, 4097, 1 << 20} {
		m := alloc(t, d, bytes)
		used += bytes
		if m.Bytes != bytes || uintptr(m.Ptr)%64 != 0 || m.Space != tensor.Device || d.Used() != used {
			t.Errorf("%d bytes: %+v, %d in use", bytes, m, d.Used())
		}
		holds(t, "new memory", s, m, make([]byte, bytes))
	}
	if m, err := d.Alloc(0); err != nil || !m.IsZero() {
		t.Errorf("no bytes: %+v, %v", m, err)
	}
	d.Free(tensor.Mem{})
	_, err := d.Alloc(1 << 50)
	if err == nil || !strings.Contains(err.Error(), "allocate 1125899906842624 bytes") || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("a pebibyte: %v", err)
	}
}

// Freed memory is used again once its streams are idle, zeroed, and given to the
// GPU when two steps have not wanted it.
func TestPool(t *testing.T) {
	d := cudatest.New(t)
	s := d.NewStream()
	other := d.NewStream()
	const large = 64 << 20
	d.Free(take(t, d, large)) // the driver keeps memory for its first zeroing
	d.Trim()
	start, _, err := d.Memory()
	expect.OK(t, err)
	m := take(t, d, large)
	s.Copy(m, tensor.From(pattern(large)))
	d.Free(m)
	if d.Used() != 0 || d.Kept() != large {
		t.Errorf("%d bytes in use and %d kept after all was freed", d.Used(), d.Kept())
	}
	early := take(t, d, large)
	if early.Ptr == m.Ptr {
		t.Error("memory was used again while a stream could be at work with it")
	}
	sync(t, s)
	again := take(t, d, large-large/16)
	if again.Ptr != m.Ptr {
		t.Error("idle memory was not used again")
	}
	holds(t, "memory used again", other, again, make([]byte, again.Bytes))

	d.Free(again)
	d.Free(early)
	sync(t, s)
	if small := take(t, d, large/2); small.Ptr == m.Ptr || small.Ptr == early.Ptr {
		t.Error("half of the memory would be wasted")
	} else {
		d.Free(small)
	}
	sync(t, s)
	sync(t, other) // not the main stream: nothing ages
	if d.Kept() != large/2 {
		t.Errorf("%d bytes kept after two Syncs, want %d", d.Kept(), large/2)
	}
	sync(t, s)
	if free, _, err := d.Memory(); err != nil || d.Kept() != 0 || free != start {
		t.Errorf("%d bytes kept, %d free, %v: want 0 and %d", d.Kept(), free, err, start)
	}
	d.Free(take(t, d, large))
	d.Trim()
	if d.Kept() != 0 {
		t.Errorf("%d bytes kept after Trim", d.Kept())
	}
}

// Memory that is kept makes room for an allocation.
func TestPoolMakesRoom(t *testing.T) {
	const memory = 64 << 20
	t.Setenv("DYNMO_EMULATE_MEMORY", strconv.Itoa(memory))
	d := cudatest.New(t)
	if !cudatest.Emulated(d) {
		t.Skip("would take all memory of the GPU")
	}
	d.Free(take(t, d, memory/4*3))
	m := alloc(t, d, memory/2)
	if d.Kept() != 0 {
		t.Errorf("%d bytes kept of %d", d.Kept(), memory)
	}
	_, err := d.Alloc(m.Bytes + 1)
	want := "cuda: allocate 33554433 bytes on dynmo emulated GPU: out of memory (OutOfMemory): " +
		"33554432 of its 67108864 bytes are free, 33554432 are in use here"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestCopies(t *testing.T) {
	d := cudatest.New(t)
	s := d.NewStream()
	for _, n := range []int64{1, 1000, 3 << 20, 20<<20 + 5} {
		a, b := alloc(t, d, n+3), alloc(t, d, n)
		want, src := pattern(n), pattern(n)
		s.Copy(a.Span(3, n), tensor.From(src)) // through the ring
		clear(src)                             // and the caller goes on
		s.Copy(b, a.Span(3, n))
		holds(t, "pageable memory", s, b, want)

		pinned, err := d.AllocHost(2*n + 7)
		expect.OK(t, err)
		for i, x := range tensor.Of[byte](pinned) {
			if x != 0 {
				t.Fatalf("pinned memory: byte %d is %d", i, x)
			}
		}
		there, back := pinned.Span(1, n), pinned.Span(n+4, n)
		s.Copy(there, tensor.From(want))
		s.Zero(b)
		s.Copy(b, there)
		s.Copy(back, b)
		s.Zero(b)
		sync(t, s)
		same(t, "pinned memory", tensor.Of[byte](back), want)
		s.Zero(there)
		holds(t, "zeroed memory", s, b, make([]byte, n))
		same(t, "zeroed host memory", tensor.Of[byte](there), make([]byte, n))
		d.FreeHost(pinned)
	}
	s.Copy(tensor.Mem{}, tensor.Mem{})
	s.Zero(tensor.Mem{})
	d.FreeHost(tensor.Mem{})
	sync(t, s)
}

// Many small copies go round the ring, on two streams, and none overtakes itself.
func TestRing(t *testing.T) {
	d := cudatest.New(t)
	streams := []device.Stream{d.NewStream(), d.NewStream()}
	const pieces, bytes = 40, 900_001
	m := alloc(t, d, pieces*bytes)
	want, piece := pattern(pieces*bytes), make([]byte, bytes)
	for i := range int64(pieces) {
		copy(piece, want[i*bytes:])
		streams[i%2].Copy(m.Span(i*bytes, bytes), tensor.From(piece))
	}
	sync(t, streams[1])
	holds(t, "ring", streams[0], m, want)
}

func TestEvents(t *testing.T) {
	d := cudatest.New(t)
	a, b := d.NewStream(), d.NewStream()
	const n = 8 << 20
	m, copied := alloc(t, d, n), alloc(t, d, n)
	want := pattern(n)
	for range 5 {
		a.Zero(m)
		a.Copy(m, tensor.From(want))
		b.After(a.Record(nil))
		b.Copy(copied, m)
		a.After(b.Record(nil))
		a.Zero(m)
		sync(t, a)
		sync(t, b)
		holds(t, "a copy of another stream", a, copied, want)
	}

	before := d.Clock().Now()
	first := a.Record(nil)
	expect.OK(t, first.Wait())
	time.Sleep(20 * time.Millisecond)
	a.Copy(m, copied)
	last := a.Record(b.Record(nil)) // an event that is not used
	sync(t, a)
	if done, err := last.Done(); !done || err != nil {
		t.Errorf("an event of a stream that was waited for: done %v, %v", done, err)
	}
	after := d.Clock().Now()
	const slack, clocks = 1e-3, 20e-3 // of times of the device; between them and the host's clock, when the host is busy
	if x, y := first.Seconds(), last.Seconds(); x < before-clocks || y-x < 0.02-slack || y > after+clocks {
		t.Errorf("events at %.6f and %.6f s, between %.6f and %.6f, 0.02 s apart", x, y, before, after)
	}
	if last.Seconds() != last.Seconds() {
		t.Error("an event's time changes")
	}
}

// Dropped Go values of the driver's events do not pile up. A clock that is set to zero takes the
// times with it.
func TestEventsAreUsedAgain(t *testing.T) {
	d := cudatest.New(t)
	s := d.NewStream()
	for range 200 {
		s.Record(nil)
	}
	sync(t, s)
	runtime.GC()
	time.Sleep(10 * time.Millisecond)
	d.Clock().Zero(device.Monotonic())
	e := s.Record(nil)
	sync(t, s)
	if at := e.Seconds(); math.Abs(at-d.Clock().Now()) > 0.1 {
		t.Errorf("an event at %.3f s, the clock reads %.3f", at, d.Clock().Now())
	}
	e = s.Record(e)
	if allocs := testing.AllocsPerRun(100, func() { e = s.Record(e) }); allocs > 0 {
		t.Errorf("recording an event again allocates %.0f times", allocs)
	}
	sync(t, s)
}

func TestFail(t *testing.T) {
	d := cudatest.New(t)
	s := d.NewStream().(*cuda.Stream)
	if s.Handle() == nil {
		t.Error("no handle")
	}
	s.Fail(os.ErrInvalid)
	s.Fail(os.ErrExist)
	if err := s.Sync(); err != os.ErrInvalid {
		t.Errorf("%v, want the first error", err)
	}
	if err := s.Sync(); err != nil {
		t.Errorf("%v, after it was told", err)
	}
}

func TestStreams(t *testing.T) {
	d := cudatest.New(t)
	first, second := d.NewStream(), d.NewStream()
	d.Free(take(t, d, 1000))
	first.Close()
	first.Close()
	sync(t, second) // the main stream now
	sync(t, second)
	if d.Kept() != 0 {
		t.Errorf("%d bytes kept after two Syncs of the oldest stream", d.Kept())
	}
}

func TestHostMirror(t *testing.T) {
	d := cudatest.New(t)
	m := alloc(t, d, 1001)
	mirror := device.Mirror(m)
	copy(tensor.Of[byte](mirror), pattern(1001))
	expect.OK(t, device.Write(d, m, mirror))
	read, err := device.Read(d, m)
	expect.OK(t, err)
	same(t, "what was written", tensor.Of[byte](read), pattern(1001))
}

func TestNewRefuses(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := cuda.New(device.NewVirtual(), 0); err == nil || !strings.Contains(err.Error(), "virtual clock") {
		t.Errorf("a virtual clock: %v", err)
	}
	visible, err := cuda.Visible()
	expect.OK(t, err)
	for _, ordinal := range []int{-1, visible} {
		if _, err := cuda.New(device.NewWall(), ordinal); err == nil || !strings.Contains(err.Error(), "there is no GPU") {
			t.Errorf("GPU %d of %d: %v", ordinal, visible, err)
		}
	}
}

func TestDescribe(t *testing.T) {
	g := cudatest.New(t).Describe()
	if g.Name == "" || !strings.HasPrefix(g.UUID, "GPU-") || len(g.UUID) != 40 || strings.Count(g.Bus, ":") != 2 || g.Major < 5 || g.Memory < 1<<28 {
		t.Errorf("%+v", g)
	}
}

// A GPU whose memory fails says so at the next Sync. The emulator takes its
// orders when a process starts, so the test starts one.
func TestFaultyMemory(t *testing.T) {
	if os.Getenv("DYNMO_EMULATE_FAULT") == "" {
		if !cudatest.Emulated(cudatest.New(t)) {
			t.Skip("needs a GPU that fails when asked to")
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestFaultyMemory$", "-test.v")
		cmd.Env = append(os.Environ(), "DYNMO_EMULATE_FAULT=ecc", "DYNMO_EMULATE_FAULT_AFTER=0")
		text, _ := cmd.CombinedOutput()
		if !strings.Contains(string(text), "uncorrectable ECC error") {
			t.Errorf("a GPU with faulty memory: %s", text)
		}
		return
	}
	d, err := cuda.New(device.NewWall(), 0)
	if err == nil {
		err = d.NewStream().Sync()
	}
	t.Log(err)
}
