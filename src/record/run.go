package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"dynmo/src/trace"
)

// lookEvery is the time between two checks that the run directory still exists. It is short enough
// to lose little work, and long enough to load no file system.
const lookEvery = time.Second

// Run writes one run directory. Every line is written at once, so a killed run leaves whole lines.
// Lines that the disk does not take are kept and written later. A nil Run records nothing. Only one
// goroutine may use a Run.
type Run struct {
	// Warn is told once that the records cannot be written, and once that they can be written again;
	// nil: nobody is told.
	Warn func(text string)

	dir                            string
	metrics, events, costs, traces appendFile
	chrome                         chrome // writes into traces
	board                          *board
	looked                         time.Time // time of the last check of the directory
	lock                           *lock     // nil once it is released
	closed                         bool      // whether the files are closed
	failing                        bool      // whether Warn was told that records cannot be written
}

// Dir returns the run directory.
func (r *Run) Dir() string { return r.dir }

// Step adds a line to metrics.jsonl, and the scalars of the step to TensorBoard's file. A lost run
// directory is an error.
func (r *Run) Step(m Metrics) error {
	if r == nil {
		return nil
	}
	if now := time.Now(); now.Sub(r.looked) >= lookEvery {
		r.looked = now
		if err := r.look(); err != nil {
			return err
		}
	}
	r.board.add(m)
	return r.line(&r.metrics, m)
}

// Event adds a line to events.jsonl, and the size of a move to TensorBoard's file.
func (r *Run) Event(e Event) error {
	if r == nil {
		return nil
	}
	if e.Moved() {
		r.board.moved(e, time.Now())
	}
	return r.line(&r.events, e)
}

// Costs adds a line to costs.jsonl.
func (r *Run) Costs(s Phase) error {
	if r == nil {
		return nil
	}
	return r.line(&r.costs, s)
}

// Timelines returns the number of steps in trace.json.
func (r *Run) Timelines() int { return r.chrome.steps }

// Trace adds a step of the first replica to trace.json.
func (r *Run) Trace(s trace.Step) error {
	if r == nil {
		return nil
	}
	if err := r.chrome.add(s); err != nil && !errors.Is(err, errDropped) {
		return wrap(err)
	}
	r.tell()
	return nil
}

// line writes a value as one line of JSON, with one system call.
func (r *Run) line(f *appendFile, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return wrap(err)
	}
	_, _ = f.Write(append(text, '\n')) // a dropped entry is counted
	r.tell()
	return nil
}

// appended returns the files that grow while the run goes on.
func (r *Run) appended() []*appendFile {
	list := []*appendFile{&r.metrics, &r.events, &r.costs, &r.traces}
	if r.board != nil { // nil while the directory is opened
		list = append(list, r.board.file)
	}
	return list
}

// tell tries again to write what is kept. It warns when records can no longer be written, and when
// they can be written again.
func (r *Run) tell() {
	var failed error
	for _, f := range r.appended() {
		if f.failed != nil {
			f.flush()
		}
		failed = cmp.Or(failed, f.failed)
	}
	if (failed != nil) == r.failing || r.Warn == nil {
		return
	}
	if r.failing = failed != nil; r.failing {
		r.Warn(fmt.Sprintf("warning: records are kept in memory until they can be written: %v", failed))
	} else {
		r.Warn("the records that were kept in memory are written")
	}
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
// is an error. Records that could not be written are none: Warn is told what is missing. The lock of
// the directory is kept.
func (r *Run) CloseFiles() error {
	if r.closed {
		return nil
	}
	r.closed = true
	r.board.flush(time.Now())
	err := r.look()
	if failed := r.chrome.close(); !errors.Is(failed, errDropped) {
		err = cmp.Or(err, wrap(failed))
	}
	for _, f := range r.appended() {
		if missing := f.close(); missing != "" && r.Warn != nil {
			r.Warn("warning: records: " + missing)
		}
	}
	return err
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
