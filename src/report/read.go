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

	"dynmo/src/config"
	"dynmo/src/input"
	"dynmo/src/profile"
	"dynmo/src/record"
)

// Run is the content of a run directory.
type Run struct {
	Dir     string
	Config  config.Config
	Metrics []record.Metrics
	Events  []record.Event
	Status  string   // how the run ended, as SummaryFile says; "" where there is none
	Notes   []string // what of the files was left out, and why

	// Fields that only the page shows; absent from older runs.
	Settings   string             // config.toml as it was written
	Provenance *record.Provenance // nil if there is none
	Timelines  []record.Timeline  // of some steps; none if there are none
	Costs      profile.Series     // what layers cost; none if that was not recorded
}

// Read reads a run directory. A run without a single step is an error.
func Read(dir string) (Run, error) {
	r := Run{Dir: dir}
	var err error
	if r.Config, err = config.Load(r.file(record.SettingsFile), nil); err != nil {
		return r, err
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
	var end struct {
		Status string `json:"status"`
	}
	err = r.value(SummaryFile, &end)
	r.Status = end.Status
	return r, err
}

// SummaryFile says how a run ended. A run that has not ended has none.
const SummaryFile = "summary.json"

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
	if err := r.value(record.ProvenanceFile, &r.Provenance); err != nil {
		return r, err
	}
	if err := r.costs(); err != nil {
		return r, err
	}
	trace, err := input.Read(r.file(record.TraceFile), input.Records)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	} else if err != nil {
		return r, err
	}
	trace, note := input.Whole(r.file(record.TraceFile), trace)
	r.note(note)
	r.Timelines, err = record.ReadTrace(r.file(record.TraceFile), bytes.NewReader(trace))
	return r, err
}

// file returns the path of one of the run's files.
func (r Run) file(name string) string { return filepath.Join(r.Dir, name) }

// note keeps a note of a file; "" is none.
func (r *Run) note(text string) {
	if text != "" {
		r.Notes = append(r.Notes, text)
	}
}

// value reads a file that holds one JSON value, if there is one and it is not empty.
func (r Run) value(name string, v any) error {
	text, err := input.Read(r.file(name), input.Note)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return nil
	} else if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%s: %w", r.file(name), err)
	}
	return nil
}

// costs reads what layers cost, if that was recorded.
func (r *Run) costs() error {
	path := r.file(record.CostsFile)
	text, err := input.Read(path, input.Records)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, note := input.Whole(path, text)
	r.note(note)
	if len(text) > 0 {
		r.Costs, err = profile.ReadSeries(path, bytes.NewReader(text), 0)
		return err
	}
	return nil
}

// lines reads one of the run's files of one JSON value a line.
func lines[T any](r *Run, name string) ([]T, error) {
	list, note, err := input.Lines[T](r.file(name), input.Records)
	r.note(note)
	return list, err
}
