// Package report turns the records of runs into tables that people read.
package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"dynmo/src/config"
	"dynmo/src/record"
)

// Run is what a run directory holds.
type Run struct {
	Dir     string
	Config  config.Config
	Metrics []record.Metrics
	Events  []record.Event
}

// Read reads a run directory. A run without a single step is an error.
func Read(dir string) (Run, error) {
	r := Run{Dir: dir}
	var err error
	if r.Config, err = config.Load(filepath.Join(dir, record.SettingsFile), nil); err != nil {
		return r, err
	}
	if r.Metrics, err = lines[record.Metrics](filepath.Join(dir, record.MetricsFile)); err != nil {
		return r, err
	}
	if len(r.Metrics) == 0 {
		return r, fmt.Errorf("%s: no step was recorded", filepath.Join(dir, record.MetricsFile))
	}
	r.Events, err = lines[record.Event](filepath.Join(dir, record.EventsFile))
	return r, err
}

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
