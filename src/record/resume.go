package record

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"dynmo/src/files"
)

// From is the point from which a run resumes.
type From struct {
	Step       int      // the first step that will run
	Checkpoint string   // directory of the checkpoint; "": there is none
	Damaged    []string // the reasons why newer checkpoints were not used
	Clock      string   // clock of the steps that will run
	Kept       Fold     // receives what the run keeps; nil: nobody
}

// Fold receives the steps, events and phases of a run, in the order in which they happened.
type Fold interface {
	Step(Metrics)
	Event(Event)
	Costs(Phase)
}

// nobody is the Fold that keeps nothing.
type nobody struct{}

func (nobody) Step(Metrics) {}
func (nobody) Event(Event)  {}
func (nobody) Costs(Phase)  {}

// Past is the content of a run directory before the first step that will run. The zero Past is that
// of a new run.
type Past struct {
	Restarts int      // number of restarts, with this one; 0 for a new run
	Cut      int      // removed lines of steps that will run again
	Damaged  int      // damaged lines, which no reader could have read
	Missing  int      // earlier steps without a line
	Last     *Metrics // the last step that is kept; nil: there is none
	Skipped  int      // steps without an update
	Changes  []Event  // changes of the model before the first step that will run
}

// Resume opens a run directory again. Files keep the steps before the first step that will run.
// Later steps and damaged lines are removed. Old settings and provenance are kept as config.N.toml
// and provenance.N.json of the N-th restart. If the directory has no run, Resume is Open. If the
// process is killed meanwhile, the directory can still be resumed from the same step: no line of an
// earlier step is ever missing. Errors are those of Open, except that the directory
// may have a run, but not a simulated one.
func Resume(dir, settings string, p Provenance, from From) (*Run, Past, error) {
	there, err := holdsRun(dir)
	if err != nil {
		return nil, Past{}, wrap(err)
	}
	if !there {
		r, err := Open(dir, settings, p)
		return r, Past{}, err
	}
	fail := func(err error) (*Run, Past, error) {
		return nil, Past{}, fmt.Errorf("record: run directory %s: %w", dir, err)
	}
	if err := private(dir); err != nil {
		return fail(err)
	}
	if clock, err := Clock(dir); err != nil || clock == Simulated {
		return fail(cmp.Or(err, errors.New("its records are of dynmo simulate, and there is nothing to resume: take another directory")))
	}
	l, err := takeLock(dir)
	if err != nil {
		return fail(err)
	}
	if from.Kept == nil {
		from.Kept = nobody{}
	}
	s := resumption{dir: dir, from: from}
	r, err := s.run(settings, p)
	if err != nil {
		_ = l.release()
		return fail(err)
	}
	r.lock = l
	debug.FreeOSMemory() // free the memory of reading
	return r, s.past, nil
}

// Clock returns the clock of the first step in the records of a directory; "": no step is recorded.
func Clock(dir string) (string, error) {
	f, _, err := files.Regular(filepath.Join(dir, MetricsFile), files.Unbound)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := files.NextLine(bufio.NewReader(f))
	if errors.Is(err, io.EOF) {
		return "", nil
	}
	var first Metrics
	if err != nil || json.Unmarshal(line, &first) != nil { // a damaged line tells nothing
		return "", err
	}
	return first.Clock, nil
}

// holdsRun reports whether a directory has files of a run.
func holdsRun(dir string) (bool, error) {
	for _, name := range runFiles {
		_, err := os.Lstat(filepath.Join(dir, name))
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err == nil, err
		}
	}
	return false, nil
}

// resumption is the work of opening a run directory again.
type resumption struct {
	dir  string
	from From
	past Past
}

// run opens the files of the run. The process may be killed after any of these steps. So files are
// cut before the restart is counted, and the restart is counted before old settings are kept under
// its number. Then the next restart uses another number.
func (s *resumption) run(settings string, p Provenance) (*Run, error) {
	r := &Run{dir: s.dir, looked: time.Now()}
	if err := cmp.Or(s.checkFiles(), s.cut(&r.chrome)); err != nil {
		return nil, err
	}
	c := claims{dir: s.dir}
	opened, err := s.open(r, &c, settings, p)
	if err != nil {
		c.discard()
		for _, f := range opened {
			_ = f.Close()
		}
		return nil, err
	}
	return r, nil
}

// checkFiles refuses files of the run that are not regular: reading or writing a FIFO would wait.
func (s *resumption) checkFiles() error {
	for _, name := range []string{MetricsFile, EventsFile, CostsFile, TraceFile, SettingsFile, ProvenanceFile, SummaryFile} {
		f, _, err := files.Regular(s.path(name), files.Unbound)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		_ = f.Close()
	}
	return nil
}

// open opens the files, records the restart, and replaces settings and provenance.
func (s *resumption) open(r *Run, c *claims, settings string, p Provenance) (opened []*os.File, err error) {
	for _, f := range []struct {
		name string
		file *appendFile
	}{{MetricsFile, &r.metrics}, {EventsFile, &r.events}, {CostsFile, &r.costs}, {TraceFile, &r.traces}} {
		f.file.File, err = os.OpenFile(s.path(f.name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, fileMode)
		if err != nil {
			return opened, err
		}
		opened = append(opened, f.file.File)
	}
	r.chrome.out = &r.traces
	resumed := s.event()
	if err := r.Event(resumed); err != nil {
		return opened, errors.Unwrap(err)
	}
	s.from.Kept.Event(resumed)
	provenance, err := json.MarshalIndent(p, "", "  ")
	if err := cmp.Or(err, s.renew(SettingsFile, settings), s.renew(ProvenanceFile, string(provenance)+"\n"), files.WriteText(s.path(SummaryFile), "")); err != nil {
		return opened, err
	}
	if r.board, err = newBoard(c, settings, p.Host, time.Now(), s.past.Restarts); err != nil {
		return opened, err
	}
	r.board.purge(s.from.Step, time.Now())
	return opened, nil
}

func (s *resumption) path(name string) string { return filepath.Join(s.dir, name) }

// event returns the event of this restart.
func (s *resumption) event() Event {
	me := self()
	detail := map[string]any{"restart": s.past.Restarts, "cut": s.past.Cut, "host": me.Host}
	for name, text := range map[string]string{"checkpoint": s.from.Checkpoint, "job": me.Job, "damaged": strings.Join(s.from.Damaged, "; ")} {
		if text != "" {
			detail[name] = text
		}
	}
	for name, n := range map[string]int{"requeued": me.Restart, "damaged_lines": s.past.Damaged, "missing_steps": s.past.Missing} {
		if n > 0 {
			detail[name] = n
		}
	}
	return Event{Step: s.from.Step, Kind: Resumed, Clock: s.from.Clock, Detail: detail}
}

// earlier returns the name for the file of an earlier start: "config.2.toml" for "config.toml" and
// restart 2.
func earlier(name, restart string) string {
	ext := filepath.Ext(name)
	return strings.TrimSuffix(name, ext) + "." + restart + ext
}

// renew replaces a file. The old content is kept under the name of the restart.
func (s *resumption) renew(name, content string) error {
	old, err := os.ReadFile(s.path(name))
	if err == nil {
		err = files.WriteText(s.path(earlier(name, fmt.Sprint(s.past.Restarts))), string(old))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return files.WriteText(s.path(name), content)
}
