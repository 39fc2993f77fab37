package record

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/profile"
	"dynmo/src/trace"
)

// lookEvery is the time between two checks that the run directory still exists. It is short enough
// to lose little work, and long enough to load no file system.
const lookEvery = time.Second

// Run writes one run directory. Every line is written at once, so a killed run leaves whole lines.
// Only one goroutine may use a Run.
type Run struct {
	dir                            string
	metrics, events, costs, traces *os.File
	chrome                         chrome // writes into traces
	board                          *board
	looked                         time.Time // time of the last check of the directory
	lock                           *lock     // nil once it is released
	closed                         bool      // whether the files are closed
}

// Dir returns the run directory.
func (r *Run) Dir() string { return r.dir }

// Step adds a line to metrics.jsonl, and the scalars of the step to TensorBoard's file. A lost run
// directory is an error.
func (r *Run) Step(m Metrics) error {
	if now := time.Now(); now.Sub(r.looked) >= lookEvery {
		r.looked = now
		if err := r.look(); err != nil {
			return err
		}
	}
	if err := line(r.metrics, m); err != nil {
		return err
	}
	return wrap(r.board.add(m))
}

// Event adds a line to events.jsonl.
func (r *Run) Event(e Event) error { return line(r.events, e) }

// Costs adds a line to costs.jsonl.
func (r *Run) Costs(s profile.Phase) error { return line(r.costs, s) }

// Timelines returns the number of steps in trace.json.
func (r *Run) Timelines() int { return r.chrome.steps }

// Trace adds a step of one replica to trace.json.
func (r *Run) Trace(s trace.Step, replica int) error {
	return wrap(r.chrome.add(Timeline{replica, s}))
}

// line writes a value as one line of JSON, with one system call.
func line(f *os.File, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		_, err = f.Write(append(text, '\n'))
	}
	return wrap(err)
}

// wrap adds the prefix "record: " to an error.
func wrap(err error) error {
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// look returns an error if written data no longer arrives in the run directory: the directory was
// removed or replaced, or its file system is gone or read-only. Writes to open files would succeed
// all the same.
func (r *Run) look() error {
	lost := func(err error) error { return fmt.Errorf("record: run directory %s is lost: %w", r.dir, err) }
	there, err := os.Stat(filepath.Join(r.dir, MetricsFile))
	if err != nil {
		return lost(err)
	}
	ours, err := r.metrics.Stat()
	if err != nil {
		return lost(err)
	}
	if !os.SameFile(there, ours) {
		return lost(fmt.Errorf("%s there is another file", MetricsFile))
	}
	if err := unix.Access(r.dir, unix.W_OK); err != nil {
		return lost(fmt.Errorf("not writable: %w", err))
	}
	return nil
}

// CloseFiles completes and closes the files once, and returns the first error. A lost run directory
// is an error. The lock of the directory is kept.
func (r *Run) CloseFiles() error {
	if r.closed {
		return nil
	}
	r.closed = true
	return cmp.Or(r.look(), wrap(r.chrome.close()), wrap(r.board.close()),
		wrap(r.metrics.Close()), wrap(r.events.Close()), wrap(r.costs.Close()), wrap(r.traces.Close()))
}

// Close calls CloseFiles and releases the lock of the run directory.
func (r *Run) Close() error {
	err := r.CloseFiles()
	if r.lock != nil {
		err = cmp.Or(err, wrap(r.lock.release()))
		r.lock = nil
	}
	return err
}
