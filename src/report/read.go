// Package report turns the records of runs into text for people: run directories
// come in, tables of several runs and a page of one in HTML go out.
package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"dynmo/src/config"
	"dynmo/src/record"
)

// Run is the content of a run directory.
type Run struct {
	Dir     string
	Config  config.Config
	Metrics []record.Metrics
	Events  []record.Event

	// Fields that only the page shows; absent from older runs.
	Settings   string             // config.toml as it was written
	Provenance *record.Provenance // nil if there is none
	Timelines  []record.Timeline  // of some steps; none if there are none
}

// Read reads a run directory. A run without a single step is an error.
func Read(dir string) (Run, error) {
	r := Run{Dir: dir}
	var err error
	if r.Config, err = config.Load(r.file(record.SettingsFile), nil); err != nil {
		return r, err
	}
	if r.Metrics, err = lines[record.Metrics](r.file(record.MetricsFile)); err != nil {
		return r, err
	}
	if len(r.Metrics) == 0 {
		return r, fmt.Errorf("%s: no step was recorded", r.file(record.MetricsFile))
	}
	r.Events, err = lines[record.Event](r.file(record.EventsFile))
	return r, err
}

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
	switch text, err := os.ReadFile(r.file(record.ProvenanceFile)); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return r, err
	default:
		r.Provenance = new(record.Provenance)
		if err := json.Unmarshal(text, r.Provenance); err != nil {
			return r, fmt.Errorf("%s: %w", r.file(record.ProvenanceFile), err)
		}
	}
	f, err := os.Open(r.file(record.TraceFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	} else if err != nil {
		return r, err
	}
	defer f.Close()
	r.Timelines, err = record.ReadTrace(f.Name(), f)
	return r, err
}

// file returns the path of one of the run's files.
func (r Run) file(name string) string { return filepath.Join(r.Dir, name) }

// lines reads a file of one JSON value a line.
func lines[T any](path string) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []T
	in := bufio.NewScanner(f)
	in.Buffer(nil, 16<<20) // a line of a run on a thousand ranks is far shorter
	for n := 1; in.Scan(); n++ {
		var v T
		if err := json.Unmarshal(in.Bytes(), &v); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		list = append(list, v)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}
