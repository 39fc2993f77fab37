package record

import (
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

	"dynmo/src/replace"
)

// From is what a run resumes from.
type From struct {
	Step       int      // the first that is run
	Checkpoint string   // its directory; "": there is none
	Damaged    []string // why newer checkpoints were not taken
	Clock      string   // of the steps to come
}

// Past is what a run directory has of the steps before. The zero Past is that of a run
// that begins.
type Past struct {
	Restarts int      // of the run, with this one; 0 where none lay there
	Cut      int      // lines of steps that are run again, as they will be again
	Damaged  int      // lines that no reader could have read
	Missing  int      // steps before the first that have no line
	Last     *Metrics // of the last step that is kept; nil: there is none
	Skipped  int      // steps without an update
	Changes  []Event  // of the model, before the first step that is run
	Tally    Tally    // of the steps that are kept
}

// Resume opens a run directory again. Files keep the steps before the first step that will run.
// Later steps are removed, and so are damaged lines. Old settings and provenance stay as
// config.N.toml and provenance.N.json of the N-th restart. Without a run in the directory Resume
// is Open. A process that is killed meanwhile leaves a directory that can be resumed from the
// same step: no line of an earlier step is ever missing. Errors are those of Open, except that a
// run may lie there.
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
	l, err := takeLock(dir)
	if err != nil {
		return fail(err)
	}
	s := resumption{dir: dir, from: from}
	r, err := s.run(settings, p)
	if err != nil {
		_ = l.release()
		return fail(err)
	}
	r.lock = l
	debug.FreeOSMemory() // what was read in passing
	return r, s.past, nil
}

// holdsRun reports whether a directory has files of a run.
func holdsRun(dir string) (bool, error) {
	for _, name := range files {
		_, err := os.Lstat(filepath.Join(dir, name))
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err == nil, err
		}
	}
	return false, nil
}

// resumption opens a run directory again.
type resumption struct {
	dir  string
	from From
	past Past
}

// run opens the files of the run. The process may be killed after any of them. So files are cut
// before the restart is counted, and the restart is counted before old settings are kept under
// its number. The next restart then uses another number.
func (s *resumption) run(settings string, p Provenance) (*Run, error) {
	r := &Run{dir: s.dir, looked: time.Now()}
	if err := s.cut(&r.chrome); err != nil {
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

// open opens the files, records the restart, and replaces settings and provenance.
func (s *resumption) open(r *Run, c *claims, settings string, p Provenance) (opened []*os.File, err error) {
	for _, f := range []struct {
		name string
		file **os.File
	}{{MetricsFile, &r.metrics}, {EventsFile, &r.events}, {CostsFile, &r.costs}, {TraceFile, &r.traces}} {
		*f.file, err = os.OpenFile(s.path(f.name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, fileMode)
		if err != nil {
			return opened, err
		}
		opened = append(opened, *f.file)
	}
	r.chrome.out = r.traces
	resumed := s.event()
	if err := r.Event(resumed); err != nil {
		return opened, errors.Unwrap(err)
	}
	s.past.Tally.Event(resumed)
	provenance, err := json.MarshalIndent(p, "", "  ")
	if err := cmp.Or(err, s.renew(SettingsFile, settings), s.renew(ProvenanceFile, string(provenance)+"\n"), s.write(SummaryFile, "")); err != nil {
		return opened, err
	}
	if r.board, err = newBoard(c, p.Host, time.Now(), s.past.Restarts); err != nil {
		return opened, err
	}
	return opened, r.board.purge(s.from.Step, time.Now())
}

func (s *resumption) path(name string) string { return filepath.Join(s.dir, name) }

// event returns the event of the restart.
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

// earlier returns the name under which a file of earlier starts is kept.
func earlier(name, restart string) string {
	ext := filepath.Ext(name)
	return strings.TrimSuffix(name, ext) + "." + restart + ext
}

// renew replaces a file, whose old content stays under the name of the restart.
func (s *resumption) renew(name, content string) error {
	old, err := os.ReadFile(s.path(name))
	if err == nil {
		err = s.write(earlier(name, fmt.Sprint(s.past.Restarts)), string(old))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.write(name, content)
}

// write makes or replaces a file, whole or not at all.
func (s *resumption) write(name, content string) error {
	return replace.Write(s.path(name), func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
}
