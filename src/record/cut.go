package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"dynmo/src/files"
)

// cut removes the steps that will run again from all files, and fills past from the remaining
// lines.
func (s *resumption) cut(c *chrome) error {
	s.past.Restarts, s.past.Missing = 1, s.from.Step
	var kept []Event
	for _, f := range []struct {
		name string
		edit filter
	}{
		{EventsFile, s.events(&kept)},
		{MetricsFile, s.metrics(&kept)},
		{CostsFile, s.costs()},
		{TraceFile, s.timelines(c)},
	} {
		if err := s.edit(f.name, f.edit); err != nil {
			return err
		}
	}
	if s.past.Last != nil {
		s.past.Missing -= s.past.Last.Step + 1
	}
	return nil
}

// filter returns the text that is kept of a line. Its last call has the line nil, after the last
// line of the file.
type filter func(line []byte) []byte

// edit passes the lines of a file through a filter. The file then has the texts that the filter
// returned. A missing file stays missing.
func (s *resumption) edit(name string, keep filter) error {
	f, _, err := files.Regular(s.path(name), files.Unbound)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	w := rewriter{file: f, path: s.path(name)}
	for in := bufio.NewReaderSize(f, 1<<20); ; {
		line, err := files.NextLine(in)
		last := errors.Is(err, io.EOF)
		if err == nil || last {
			err = w.add(keep(line))
		}
		switch {
		case err != nil:
			w.discard()
			return fmt.Errorf("%s: %w", name, err)
		case last:
			return w.end()
		}
	}
}

// rewriter replaces the content of a file. As long as the new content is the begin of the old one
// it writes nothing, and at the end cuts the file off. Else it writes another file.
type rewriter struct {
	file *os.File
	path string
	same int64 // bytes at the begin that stay
	to   *files.File
	out  *bufio.Writer // into to
}

// add appends a text to the new content.
func (w *rewriter) add(text []byte) error {
	if w.to == nil {
		old := make([]byte, len(text))
		if n, _ := w.file.ReadAt(old, w.same); n == len(text) && bytes.Equal(old, text) {
			w.same += int64(n)
			return nil
		}
		var err error
		if w.to, err = files.Create(w.path); err != nil {
			return err
		}
		w.out = bufio.NewWriterSize(w.to, 1<<20)
		if _, err := io.Copy(w.out, io.NewSectionReader(w.file, 0, w.same)); err != nil {
			return err
		}
	}
	_, err := w.out.Write(text)
	return err
}

// end completes the new content.
func (w *rewriter) end() error {
	if w.to != nil {
		return errors.Join(w.out.Flush(), w.to.Commit())
	}
	info, err := w.file.Stat()
	if err != nil || info.Size() == w.same {
		return err
	}
	return errors.Join(os.Truncate(w.path, w.same), w.file.Sync())
}

// discard keeps the old content.
func (w *rewriter) discard() {
	if w.to != nil {
		w.to.Discard()
	}
}

// values keeps the lines whose JSON value passes keep. It counts removed and damaged lines in past.
// end may be nil.
func values[T any](past *Past, keep func(T) bool, end func()) filter {
	return func(line []byte) []byte {
		var v T
		switch {
		case line == nil:
			if end != nil {
				end()
			}
		case json.Unmarshal(line, &v) != nil:
			past.Damaged++
		case !keep(v):
			past.Cut++
		default:
			return append(bytes.TrimSuffix(line, []byte("\n")), '\n')
		}
		return nil
	}
}

// events keeps the events before the first step that will run. It also keeps every resumption,
// every return of nodes, and the checkpoints up to the one from which the run resumes.
func (s *resumption) events(kept *[]Event) filter {
	return values(&s.past, func(e Event) bool {
		keep := e.Step < s.from.Step
		switch e.Kind {
		case Resumed:
			s.past.Restarts++
			keep = true
		case Release:
			keep = true
		case Saved:
			keep = e.Step <= s.from.Step
		case Dynamic:
			if keep {
				s.past.Changes = append(s.past.Changes, e)
			}
		}
		if keep {
			*kept = append(*kept, e)
		}
		return keep
	}, nil)
}

// metrics keeps the steps before the first step that will run. It passes these steps, and the kept
// events, on.
func (s *resumption) metrics(kept *[]Event) filter {
	var events ordered
	before := func(step int) {
		if events == nil {
			events = inOrder(*kept)
		}
		events = events.before(step, s.from.Kept.Event)
	}
	return values(&s.past, func(m Metrics) bool {
		if m.Step >= s.from.Step {
			return false
		}
		before(m.Step + 1)
		s.from.Kept.Step(m)
		s.past.Last = &m
		if m.Skipped {
			s.past.Skipped++
		}
		return true
	}, func() { before(math.MaxInt) })
}

// costs keeps the phases that begin before the first step that will run. The last of them is
// shortened to end there: its values are medians, which stay valid for fewer steps. A phase is
// written at its end, so a killed run has lost its last phase.
func (s *resumption) costs() filter {
	var last Phase  // of those that are kept
	var text []byte // its line
	keep := values(&s.past, func(p Phase) bool {
		if p.Step >= s.from.Step {
			return false
		}
		if text != nil {
			s.from.Kept.Costs(last)
		}
		last = p
		return true
	}, nil)
	return func(line []byte) []byte {
		before := text
		if next := keep(line); next != nil {
			text = next
			return before
		}
		if line != nil || text == nil {
			return nil
		}
		if steps := s.from.Step - last.Step; steps != last.Steps {
			last.Steps, last.Known = steps, last.Known[:min(len(last.Known), steps)]
			if short, err := json.Marshal(last); err == nil { // a value that was read can be written
				text = append(short, '\n')
			}
		}
		s.from.Kept.Costs(last)
		return text
	}
}

// timelines keeps the timelines of steps before the first step that will run. The file stays open
// at its end. Later timelines follow them on the axis of time.
func (s *resumption) timelines(c *chrome) filter {
	steps := map[int]bool{}
	return func(line []byte) []byte {
		if line == nil {
			c.steps = len(steps)
		}
		line = bytes.TrimSuffix(bytes.TrimSpace(line), []byte(","))
		if len(line) <= 1 { // a bracket of the array
			return nil
		}
		var e chromeEvent
		switch {
		case json.Unmarshal(line, &e) != nil:
			s.past.Damaged++
			return nil
		case e.Phase == "M" && e.Name == "process_name":
			c.clock = e.Args.Clock
		case e.Phase == "M":
			c.named++
		case e.Args.Step == nil || *e.Args.Step >= s.from.Step:
			return nil
		case e.Length != nil:
			steps[*e.Args.Step] = true
			c.behind = max(c.behind, float64(e.Start+*e.Length)/1e6)
		}
		lead := ",\n"
		if !c.begun {
			lead, c.begun = "[\n", true
		}
		return append([]byte(lead), line...)
	}
}
