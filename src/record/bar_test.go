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
	if b != nil {
		t.Error("a bar in a file")
	}
	var s screen
	b = newBar(&s, "plan", time.Hour)
	b.Show(1, 2)
	b.Close()
	if s.String() != "" {
		t.Errorf("%q", s.String())
	}
}
