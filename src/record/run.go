package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dynmo/src/profile"
	"dynmo/src/trace"
)

// Files of a run directory.
const (
	SettingsFile   = "config.toml"     // resolved settings
	ProvenanceFile = "provenance.json" // where, when and by what the run was made
	MetricsFile    = "metrics.jsonl"   // a Metrics a line
	EventsFile     = "events.jsonl"    // an Event a line
	CostsFile      = "costs.jsonl"     // a profile.Phase a line
	TraceFile      = "trace.json"      // timelines of some steps, as Chrome's trace viewer and Perfetto read them
)

// The files of a run are readable by their owner alone, whatever the umask.
const (
	directoryMode = 0o700
	fileMode      = 0o600
)

// Run writes one run directory. Every line is written at once, so that a run
// that is killed leaves whole lines. It is used by one goroutine.
type Run struct {
	dir             string
	metrics, events *os.File
	costs, trace    *os.File // nil until something is written
	chrome          chrome   // into trace
}

// Open makes dir, where it is missing, and writes the settings and provenance
// of a new run into it. Errors: dir already holds a run; it is open to writing
// by everybody; it cannot be written.
func Open(dir, settings string, p Provenance) (*Run, error) {
	fail := func(err error) (*Run, error) { return nil, fmt.Errorf("record: run directory %s: %w", dir, err) }
	if err := os.MkdirAll(dir, directoryMode); err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	if err := private(dir); err != nil {
		return fail(err)
	}
	provenance, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fail(err)
	}
	r := &Run{dir: dir}
	if r.metrics, err = create(dir, MetricsFile); err != nil {
		return fail(err)
	}
	if r.events, err = create(dir, EventsFile); err == nil {
		err = errors.Join(
			write(dir, SettingsFile, []byte(settings)),
			write(dir, ProvenanceFile, append(provenance, '\n')))
	}
	if err != nil {
		r.Close()
		_ = os.Remove(filepath.Join(dir, MetricsFile)) // it says that a run lies here
		return fail(err)
	}
	return r, nil
}

// private returns an error if anybody may replace files of a directory.
func private(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if mode := info.Mode(); mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0 {
		return fmt.Errorf("mode %#o lets everybody write; wanted a private directory (chmod o-w)", mode.Perm())
	}
	return nil
}

// create makes a new file. The one that exists says that a run lies here.
func create(dir, name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("a run already lies there (%s); wanted a new or empty directory", name)
	}
	return f, err
}

// write makes a new file with contents.
func write(dir, name string, contents []byte) error {
	f, err := create(dir, name)
	if err != nil {
		return err
	}
	_, err = f.Write(contents)
	return errors.Join(err, f.Close())
}

// Dir returns the run directory.
func (r *Run) Dir() string { return r.dir }

// Step adds a line to metrics.jsonl.
func (r *Run) Step(m Metrics) error { return line(r.metrics, m) }

// Event adds a line to events.jsonl.
func (r *Run) Event(e Event) error { return line(r.events, e) }

// Costs adds a line to costs.jsonl.
func (r *Run) Costs(s profile.Phase) error {
	if err := r.begin(&r.costs, CostsFile); err != nil {
		return err
	}
	return line(r.costs, s)
}

// Trace adds a step of one replica to trace.json.
func (r *Run) Trace(s trace.Step, replica int) error {
	if err := r.begin(&r.trace, TraceFile); err != nil {
		return err
	}
	r.chrome.out = r.trace
	if err := r.chrome.add(Timeline{replica, s}); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// begin makes a file that not every run has, before the first use of it.
func (r *Run) begin(f **os.File, name string) error {
	if *f != nil {
		return nil
	}
	var err error
	if *f, err = create(r.dir, name); err != nil {
		return fmt.Errorf("record: run directory %s: %w", r.dir, err)
	}
	return nil
}

// line writes a value as one line of JSON, by one call of the system.
func line(f *os.File, value any) error {
	text, err := json.Marshal(value)
	if err == nil {
		_, err = f.Write(append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

// Close closes the files.
func (r *Run) Close() error {
	var err error
	if r.trace != nil {
		err = r.chrome.close()
	}
	for _, f := range []*os.File{r.metrics, r.events, r.costs, r.trace} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}
