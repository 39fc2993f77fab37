// Package report turns the records of runs into text for people: run directories
// come in, tables of several runs and a page of one in HTML go out.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"dynmo/src/config"
	"dynmo/src/input"
	"dynmo/src/profile"
	"dynmo/src/record"
)

// Run is the content of a run directory.
type Run struct {
	Dir     string
	Label   string // in tables; empty is run.name (see Distinguish)
	Config  config.Config
	Metrics []record.Metrics
	Events  []record.Event
	End     *record.Summary // nil of a run that has not ended, and of older ones
	Notes   []string        // what of the files was left out, and why

	// Fields that only the page shows; absent from older runs.
	Settings   string             // config.toml as it was written
	Provenance *record.Provenance // nil if there is none
	Timelines  []record.Timeline  // of some steps; none if there are none
	Costs      profile.Series     // what layers cost; none if that was not recorded
	Bar        *record.Bar        // shows how many phases have been simulated; may be nil
}

// Read reads a run directory. A run without a single step is an error.
func Read(dir string) (Run, error) {
	r := Run{Dir: dir}
	var err error
	var unknown []string
	if r.Config, unknown, err = config.Recorded(r.file(record.SettingsFile)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = noRun(dir)
		}
		return r, err
	}
	if unknown != nil {
		r.note(fmt.Sprintf("%s: settings of another version, left out: %s", r.file(record.SettingsFile), strings.Join(unknown, ", ")))
	}
	if r.Metrics, err = lines[record.Metrics](&r, record.MetricsFile); err != nil {
		return r, err
	}
	if len(r.Metrics) == 0 {
		return r, fmt.Errorf("%s: no step was recorded", r.file(record.MetricsFile))
	}
	if r.Events, err = lines[record.Event](&r, record.EventsFile); err != nil {
		return r, err
	}
	r.End, err = record.ReadSummary(dir)
	return r, err
}

// noRun says that no run lies in a directory, and names one in it, if
// there is one.
func noRun(dir string) error {
	inside, _ := filepath.Glob(filepath.Join(dir, "*", record.SettingsFile)) // a bad pattern matches nothing
	if len(inside) == 0 {
		return fmt.Errorf("%s: no run lies there (%s is missing), want a directory that dynmo train CONFIG --run-dir DIR has filled", dir, record.SettingsFile)
	}
	return fmt.Errorf("%s: a directory of runs, want one of the %d in it, as %s", dir, len(inside), filepath.Dir(inside[len(inside)-1]))
}

// ReadAll is Read, and reads the fields that only the page shows. A damaged file is
// an error that names it; one that is missing is not.
func ReadAll(dir string) (Run, error) {
	r, err := Read(dir)
	if err != nil {
		return r, err
	}
	settings, err := input.Read(r.file(record.SettingsFile), input.Settings)
	if err != nil {
		return r, err
	}
	r.Settings = input.VisibleLines(string(settings))
	if err := r.provenance(); err != nil {
		return r, err
	}
	if r.Costs, err = r.costs(); err != nil {
		return r, err
	}
	return r, r.timeline()
}

// file returns the path of one of the run's files.
func (r Run) file(name string) string { return filepath.Join(r.Dir, name) }

// provenance reads where the run was made, if that was recorded.
func (r *Run) provenance() error {
	text, err := input.Read(r.file(record.ProvenanceFile), input.Note)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	r.Provenance = new(record.Provenance)
	if err := json.Unmarshal(text, r.Provenance); err != nil {
		return fmt.Errorf("%s: %w", r.file(record.ProvenanceFile), err)
	}
	return nil
}

// lines reads a file of one JSON value a line.
func lines[T any](r *Run, name string) ([]T, error) {
	list, torn, err := input.Lines[T](r.file(name), input.Records)
	r.note(torn)
	return list, err
}

// text reads a file whose last line may be torn. It returns nothing if there is no such file.
func (r *Run) text(name string) ([]byte, error) {
	text, err := input.Read(r.file(name), input.Records)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	text, torn := input.Whole(r.file(name), text)
	r.note(torn)
	return text, err
}

// costs reads what layers cost, none if that was not recorded.
func (r *Run) costs() (profile.Series, error) {
	text, err := r.text(record.CostsFile)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	return profile.ReadSeries(r.file(record.CostsFile), bytes.NewReader(text), r.Config.Layers())
}

// timeline reads the timelines, if there are any.
func (r *Run) timeline() error {
	text, err := r.text(record.TraceFile)
	if err != nil {
		return err
	}
	r.Timelines, err = record.ReadTrace(r.file(record.TraceFile), bytes.NewReader(text))
	return err
}

// note keeps a note of a file; "" is none.
func (r *Run) note(text string) {
	if text != "" {
		r.Notes = append(r.Notes, text)
	}
}
