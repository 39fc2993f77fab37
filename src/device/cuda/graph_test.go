//go:build cuda && cgo

package cuda_test

import (
	"os"
	"strings"
	"testing"

	"dynmo/src/device/cuda"
	"dynmo/src/device/cuda/cudatest"
	"dynmo/src/expect"
	"dynmo/src/tensor"
)

// A graph does nothing until it is launched. Each launch has the effect of its calls on the present
// contents of memory.
func TestGraph(t *testing.T) {
	d := cudatest.New(t)
	s := d.NewStream()
	const n = 3000
	a, b, c := alloc(t, d, n), alloc(t, d, n), alloc(t, d, n)
	pinned, err := d.AllocHost(n)
	expect.OK(t, err)
	defer d.FreeHost(pinned)
	s.Copy(b, tensor.From(pattern(n)))
	calls := 0
	g := s.Capture(func() {
		calls++
		s.Copy(b, a)
		s.Zero(a.Span(0, n/2))
		s.Copy(c, a)
		s.Copy(pinned, c)
	})
	defer g.Close()
	holds(t, "memory before the launch", s, b, pattern(n))
	for launch := range 3 {
		want := pattern(n + int64(launch))[launch:]
		s.Copy(a, tensor.From(want))
		g.Launch()
		holds(t, "what the graph copied first", s, b, want)
		clear(want[:n/2])
		same(t, "what the graph copied to the host", tensor.Of[byte](pinned), want)
	}
	if calls != 1 || d.Graphs() != (cuda.Graphs{Captured: 1, Launched: 3}) {
		t.Errorf("enqueued %d times, %+v, want once and one graph launched 3 times", calls, d.Graphs())
	}
}

// Work that a graph cannot hold is enqueued by every launch, without an error.
func TestUncapturable(t *testing.T) {
	d := cudatest.New(t)
	s := d.NewStream()
	m := alloc(t, d, 1000)
	for name, not := range map[string]func(){
		"it allocates": func() {
			if m, err := d.Alloc(1 << 20); err == nil {
				d.Free(m)
			}
		},
		"it waits": func() {
			if err := s.Sync(); err == nil {
				d.Trim()
			}
		},
	} {
		before := d.Graphs().Refused
		s.Copy(m, tensor.From(pattern(1000)))
		sync(t, s)
		d.Trim() // so that Alloc has to ask the driver
		g := s.Capture(func() {
			not()
			s.Zero(m)
		})
		holds(t, name+": memory before the launch", s, m, pattern(1000))
		g.Launch()
		holds(t, name+": memory after it", s, m, make([]byte, 1000))
		g.Close()
		if d.Graphs().Refused != before+1 {
			t.Errorf("%s: %+v, want one graph more refused", name, d.Graphs())
		}
	}
}

// A call that is wrong, not just uncapturable, is the error of Sync, then and whenever
// the graph is launched.
func TestGraphErrors(t *testing.T) {
	d := cudatest.New(t)
	s := d.NewStream().(*cuda.Stream)
	m := alloc(t, d, 1000)
	wrong := s.Capture(func() {
		s.Zero(m)
		s.Fail(os.ErrInvalid)
	})
	for range 2 {
		wrong.Launch()
		if err := s.Sync(); err != os.ErrInvalid {
			t.Errorf("%v, want what a call failed with", err)
		}
	}
	s.Capture(func() { s.Copy(m, tensor.From(pattern(1000))) })
	if err := s.Sync(); err == nil || !strings.Contains(err.Error(), "not pinned") {
		t.Errorf("%v, want an error that says that memory is not pinned", err)
	}
	s.Fail(os.ErrExist)
	late := s.Capture(func() { s.Zero(m) })
	if err := s.Sync(); err != os.ErrExist {
		t.Errorf("%v, want what failed before the capture", err)
	}
	late.Launch()
	if err := s.Sync(); err != nil {
		t.Error(err)
	}
	if n := d.Graphs(); n != (cuda.Graphs{}) {
		t.Errorf("%+v, want none made and none refused", n)
	}
	closed := s.Capture(func() { s.Zero(m) })
	closed.Close()
	closed.Close()
}
