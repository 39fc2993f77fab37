// Package report turns the records of runs into text for readers. The input is run directories. The
// output is tables of several runs and an HTML page of one run.
package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"dynmo/src/config"
	"dynmo/src/files"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// Run is the content of a run directory.
type Run struct {
	Dir     string
	Label   string // name in tables; "": run.name (see Distinguish)
	Config  config.Config
	Metrics []record.Metrics
	Events  []record.Event
	End     *verdict.Summary // nil for a run that has not ended, and for older ones
	Costs   record.Series    // costs of layers; empty if they were not recorded
	Notes   []string         // parts of the files that were left out, with the reason

	// These fields are only for the page; absent from older runs.
	Settings   string             // config.toml as it was written
	Provenance *record.Provenance // nil if there is none
	Timelines  []trace.Step       // some steps; may be empty
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
	if r.Metrics, err = single(r.Metrics); err != nil {
		return r, fmt.Errorf("%s: %w", r.file(record.MetricsFile), err)
	}
	if r.Events, err = lines[record.Event](&r, record.EventsFile); err != nil {
		return r, err
	}
	err = r.read(record.CostsFile, func(name string, in io.Reader) (err error) {
		r.Costs, err = record.ReadSeries(name, in, r.Config.Layers())
		for _, p := range r.Costs {
			if p.Run != nil && r.simulated() {
				p.Run.Simulated = true // older versions did not write it
			}
		}
		return err
	})
	if err != nil {
		return r, err
	}
	r.End, err = verdict.ReadSummary(dir)
	return r, err
}

// simulated reports whether the records are of a simulated run, which has no losses, and knows of the
// model's changes only that they were.
func (r Run) simulated() bool { return r.Metrics[0].Clock == record.Simulated }

// costsSource says what a simulated run took layers to cost.
func (r Run) costsSource() string {
	if len(r.Costs) == 0 {
		return "costs that were not recorded"
	}
	return "costs of clock=" + r.Costs[0].Source()
}

// timesAre says where times of steps come from.
func (r Run) timesAre() string {
	if r.simulated() {
		return "simulated"
	}
	return "measured"
}

// mostSteps is the largest number of steps that are read of a run whose lines stand for several.
const mostSteps = 1 << 22

// single returns metrics with a line for each step, where a line stands for several.
func single(list []record.Metrics) ([]record.Metrics, error) {
	steps, several := 0, false
	for _, m := range list {
		if m.Steps < 0 || m.Steps > mostSteps {
			return nil, fmt.Errorf("step %d: steps: %d, want 1 to %d", m.Step, m.Steps, mostSteps)
		}
		steps, several = steps+m.Next()-m.Step, several || m.Steps > 1
	}
	if !several {
		return list, nil
	}
	if steps > mostSteps {
		return nil, fmt.Errorf("%d steps, want at most %d", steps, mostSteps)
	}
	all := make([]record.Metrics, 0, steps)
	for _, m := range list {
		for next := m.Next(); m.Step < next; m.Step++ {
			one := m
			one.Steps = 0
			all = append(all, one)
		}
	}
	return all, nil
}

// noRun returns the error that a directory has no run. It names a run directory inside it if there
// is one.
func noRun(dir string) error {
	inside, _ := filepath.Glob(filepath.Join(dir, "*", record.SettingsFile)) // a bad pattern matches nothing
	if len(inside) == 0 {
		return fmt.Errorf("%s: no run lies there (%s is missing), want a directory that dynmo train CONFIG --run-dir DIR has filled", dir, record.SettingsFile)
	}
	return fmt.Errorf("%s: a directory of runs, want one of the %d in it, as %s", dir, len(inside), filepath.Dir(inside[len(inside)-1]))
}

// ReadAll is Read, and also reads the fields for the page. A damaged file is an error that names
// the file. A missing file is no error.
func ReadAll(dir string) (Run, error) {
	r, err := Read(dir)
	if err != nil {
		return r, err
	}
	settings, err := files.Read(r.file(record.SettingsFile), files.Settings)
	if err != nil {
		return r, err
	}
	r.Settings = files.VisibleLines(string(settings))
	if err := r.provenance(); err != nil {
		return r, err
	}
	return r, r.read(record.TraceFile, func(name string, in io.Reader) (err error) {
		r.Timelines, err = record.ReadTrace(name, in)
		return err
	})
}

// file returns the path of one of the run's files.
func (r Run) file(name string) string { return filepath.Join(r.Dir, name) }

// provenance reads the provenance of the run, if it was recorded.
func (r *Run) provenance() error {
	text, err := files.Read(r.file(record.ProvenanceFile), files.Note)
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

// lines reads a file with one JSON value for each line.
func lines[T any](r *Run, name string) ([]T, error) {
	list, torn, err := files.Lines[T](r.file(name))
	r.note(torn)
	return list, err
}

// read calls visit with the content of a file whose last line may be torn. It does nothing if there is
// no such file, or if the file is empty.
func (r *Run) read(name string, visit func(name string, in io.Reader) error) error {
	file, torn, err := files.Records(r.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	r.note(torn)
	in := bufio.NewReader(file)
	if _, err := in.Peek(1); errors.Is(err, io.EOF) {
		return nil
	}
	return visit(r.file(name), in)
}

// note adds a note about a file; "" adds none.
func (r *Run) note(text string) {
	if text != "" {
		r.Notes = append(r.Notes, text)
	}
}
