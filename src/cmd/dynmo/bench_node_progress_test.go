package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/device/nvml"
	"dynmo/src/expect"
)

// TestBenchNodeKnowsItsParts: as many parts begin as the progress bar was told.
func TestBenchNodeKnowsItsParts(t *testing.T) {
	if library, err := nvml.Open(); err == nil {
		library.Close()
		t.Skip("the reports of GPUs are parts that nobody counts before")
	}
	for _, clock := range []string{"wall", "virtual"} {
		n := &nodeFlags{bench: &benchFlags{clock: clock, threads: 1, rounds: 1}, small: true, seconds: 0.01, limit: time.Minute, burn: time.Second, folder: t.TempDir()}
		var err error
		n.clock, err = n.bench.newClock()
		expect.OK(t, err)
		r, err := n.newRecorder(0)
		expect.OK(t, err)
		n.measure(r, 0, 1)
		if slack := r.parts - r.begun; slack < 0 || slack > 1 || r.parts < 6 { // the burn-in may end before its last second was shown
			t.Errorf("clock %s: %d of %d parts have begun", clock, r.begun, r.parts)
		}
	}
}

// TestBenchNodeShowsItsProgress: on a terminal a bar has the share of the work and the time left.
func TestBenchNodeShowsItsProgress(t *testing.T) {
	t.Parallel()
	screen, terminal := openTerminal(t)
	c := alone.command(t, t.TempDir(), "bench", "node", "--small", "--seconds", "4", "--threads", "1")
	c.Stderr, c.Stdout = terminal, nil
	expect.OK(t, c.Start())
	expect.OK(t, terminal.Close())
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	var shown bytes.Buffer
	part := make([]byte, 4096)
	for end := time.Now().Add(time.Minute); !bytes.Contains(shown.Bytes(), []byte("dynmo bench node, about ")); {
		n, err := screen.Read(part)
		if shown.Write(part[:n]); err != nil || time.Now().After(end) {
			t.Fatalf("no bar: %v\n%s", err, shown.Bytes())
		}
	}
}

// openTerminal opens a pseudo-terminal.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { screen.Close() })
	expect.OK(t, unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	expect.OK(t, err)
	terminal, err = os.OpenFile(filepath.Join("/dev/pts", fmt.Sprint(number)), os.O_RDWR|unix.O_NOCTTY, 0)
	expect.OK(t, err)
	return screen, terminal
}
