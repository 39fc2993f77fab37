// Package report turns the records of runs into text for people: run directories
// come in, tables of several runs and a page of one in HTML go out.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dynmo/src/config"
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
	settings, err := os.ReadFile(r.file(record.SettingsFile))
	if err != nil {
		return r, err
	}
	r.Settings = string(settings)
	if err := r.value(record.ProvenanceFile, &r.Provenance); err != nil {
		return r, err
	}
	if err := r.costs(); err != nil {
		return r, err
	}
	trace, err := r.whole(record.TraceFile)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	} else if err != nil {
		return r, err
	}
	r.Timelines, err = record.ReadTrace(r.file(record.TraceFile), bytes.NewReader(trace))
	return r, err
}

// file returns the path of one of the run's files.
func (r Run) file(name string) string { return filepath.Join(r.Dir, name) }

// value reads a file that holds one JSON value, if there is one and it is not empty.
func (r Run) value(name string, v any) error {
	text, err := os.ReadFile(r.file(name))
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
	text, err := r.whole(record.CostsFile)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return nil
	} else if err != nil {
		return err
	}
	r.Costs, err = profile.ReadSeries(r.file(record.CostsFile), bytes.NewReader(text), 0)
	return err
}

// lines reads a file of one JSON value a line.
func lines[T any](r *Run, name string) ([]T, error) {
	text, err := r.whole(name)
	if err != nil {
		return nil, err
	}
	var list []T
	for line := range bytes.Lines(text) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", r.file(name), len(list)+1, err)
		}
		list = append(list, v)
	}
	return list, nil
}

// whole reads a file with one JSON value a line, which an array may hold, without a
// last line that is torn: a run that was killed and a disk that was full leave one.
// It is noted.
func (r *Run) whole(name string) ([]byte, error) {
	text, err := os.ReadFile(r.file(name))
	if err != nil {
		return nil, err
	}
	begin := bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1
	last := string(bytes.TrimSuffix(bytes.TrimSpace(text[begin:]), []byte(",")))
	if last != "" && last != "[" && last != "]" && !json.Valid([]byte(last)) {
		r.Notes = append(r.Notes, fmt.Sprintf("%s: the last line, %d, is torn and was left out.", name, bytes.Count(text[:begin], []byte("\n"))+1))
		text = text[:begin]
	}
	return text, nil
}
