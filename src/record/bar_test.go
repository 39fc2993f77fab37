package record

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"dynmo/src/expect"
)

// screen is a terminal that several goroutines look at.
type screen struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.text.String()
}

// shows waits until a text is on the screen.
func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(s.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %q in %q", text, s.String())
		}
	}
}

// TestBar: work of unknown length shows that it goes on. Once the number of steps is known the bar
// shows how many are done. After the work the line is empty.
func TestBar(t *testing.T) {
	var s screen
	b := newBar(&s, "plan", 0)
	s.shows(t, "plan")
	b.Show(3, 8)
	s.shows(t, "plan, about ")
	s.shows(t, " 37% ")
	b.Show(8, 8)
	b.Close()
	b.Close()
	after := s.String()
	if line := after[strings.LastIndex(after, "\r")+1:]; strings.TrimSpace(line) != "" {
		t.Errorf("%q is left", line)
	}
	b.Show(1, 8)
	if s.String() != after {
		t.Error("drawn when the work was over")
	}
}

// TestBarIsSilent where nobody looks, and while there is nothing to wait for.
func TestBarIsSilent(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	expect.OK(t, err)
	defer f.Close()
	b := NewBar(f, "plan")
	b.Show(1, 2)
	b.Clear()
	b.Close()
	if info, err := f.Stat(); err != nil || info.Size() > 0 {
		t.Errorf("%v, %v: a file has a bar within its first minute", info, err)
	}
	var s screen
	b = newBar(&s, "plan", time.Hour)
	b.Show(1, 2)
	b.Close()
	if s.String() != "" {
		t.Errorf("%q", s.String())
	}
}

// TestBarInLines: without a terminal a line of its own says the share and the time left, again and again.
func TestBarInLines(t *testing.T) {
	var s screen
	b := newLines(&s, "figures", time.Millisecond)
	s.shows(t, "figures, for ")
	b.Show(3, 8)
	s.shows(t, " left 37 %\n")
	b.Close()
	if text := s.String(); strings.Contains(text, "\r") || !strings.HasSuffix(text, "\n") {
		t.Errorf("%q, want whole lines", text)
	}
}

// TestBarGoesForward: the bar never shows less than before, whatever it is told.
func TestBarGoesForward(t *testing.T) {
	var s screen
	b := newBar(&s, "plan", 0)
	b.Show(6, 8)
	s.shows(t, " 75% ")
	b.Show(1, 8)
	b.Show(3, 100)
	time.Sleep(3 * redraw)
	b.Show(9, 10)
	s.shows(t, " 90% ")
	b.Close()
	text := s.String()
	for _, less := range []string{" 12% ", "  3% "} {
		if strings.Contains(text, less) {
			t.Errorf("%q has %q", text, less)
		}
	}
}
