package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"

	"dynmo/src/input"
	"dynmo/src/profile"
	"dynmo/src/replace"
)

// cut removes the steps that will run again from all files, and fills past from the remaining
// lines.
func (s *resumption) cut(c *chrome) error {
	s.past.Restarts, s.past.Missing = 1, s.from.Step
	var kept []Event
	for _, f := range []struct {
		name string
		edit func([]byte) []byte
	}{
		{EventsFile, func(text []byte) []byte { return s.events(text, &kept) }},
		{MetricsFile, func(text []byte) []byte { return s.metrics(text, inOrder(kept)) }},
		{CostsFile, s.costs},
		{TraceFile, func(text []byte) []byte { return s.timelines(text, c) }},
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

// edit applies a function to the content of a file and writes the result if it differs. A missing
// file stays missing.
func (s *resumption) edit(name string, to func([]byte) []byte) error {
	text, err := input.Read(s.path(name), input.Records)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	edited := to(text)
	if bytes.Equal(edited, text) {
		return nil
	}
	return replace.Write(s.path(name), func(w io.Writer) error {
		_, err := w.Write(edited)
		return err
	})
}

// values keeps the lines of a text whose JSON value passes keep. It counts removed and damaged
// lines in past.
func values[T any](past *Past, text []byte, keep func(T) bool) []byte {
	kept := make([]byte, 0, len(text)+1)
	for line := range bytes.Lines(text) {
		var v T
		switch {
		case json.Unmarshal(line, &v) != nil:
			past.Damaged++
		case !keep(v):
			past.Cut++
		default:
			kept = append(append(kept, bytes.TrimSuffix(line, []byte("\n"))...), '\n')
		}
	}
	return kept
}

// events keeps the events before the first step that will run. It also keeps every resumption,
// every return of nodes, and the checkpoints up to the one from which the run resumes.
func (s *resumption) events(text []byte, kept *[]Event) []byte {
	return values(&s.past, text, func(e Event) bool {
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
	})
}

// metrics keeps the steps before the first step that will run. It adds these steps, and the kept
// events, to the tally.
func (s *resumption) metrics(text []byte, events ordered) []byte {
	text = values(&s.past, text, func(m Metrics) bool {
		if m.Step >= s.from.Step {
			return false
		}
		events = events.before(m.Step+1, s.past.Tally.Event)
		s.past.Tally.Step(m)
		s.past.Last = &m
		if m.Skipped {
			s.past.Skipped++
		}
		return true
	})
	events.before(math.MaxInt, s.past.Tally.Event)
	return text
}

// costs keeps the phases that begin before the first step that will run. The last of them is
// shortened to end there: its values are medians, which stay valid for fewer steps. A phase is
// written at its end, so a killed run has lost its last phase.
func (s *resumption) costs(text []byte) []byte {
	var phases []profile.Phase
	text = values(&s.past, text, func(p profile.Phase) bool {
		if p.Step < s.from.Step {
			phases = append(phases, p)
		}
		return p.Step < s.from.Step
	})
	if len(phases) == 0 {
		return text
	}
	last := &phases[len(phases)-1]
	if steps := s.from.Step - last.Step; steps != last.Steps {
		last.Steps, last.Known = steps, last.Known[:min(len(last.Known), steps)]
		line, err := json.Marshal(last)
		if err == nil { // a value that was read can be written
			text = text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1]
			text = append(append(text, line...), '\n')
		}
	}
	for _, p := range phases {
		s.past.Tally.Costs(p)
	}
	return text
}

// timelines keeps the timelines of steps before the first step that will run. The file stays open
// at its end. Later timelines follow them on the axis of time.
func (s *resumption) timelines(text []byte, c *chrome) []byte {
	var kept []byte
	c.named, c.clocks = map[int]int{}, map[int]string{}
	steps := map[int]bool{}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSuffix(bytes.TrimSpace(line), []byte(","))
		if len(line) == 0 || len(line) == 1 { // a bracket of the array
			continue
		}
		var e chromeEvent
		switch {
		case json.Unmarshal(line, &e) != nil:
			s.past.Damaged++
			continue
		case e.Phase == "M" && e.Name == "process_name":
			c.clocks[e.Replica] = e.Args.Clock
		case e.Phase == "M":
			c.named[e.Replica]++
		case e.Args.Step == nil || *e.Args.Step >= s.from.Step:
			continue
		case e.Length != nil:
			steps[*e.Args.Step] = true
			c.behind = max(c.behind, float64(e.Start+*e.Length)/1e6)
		}
		lead := ",\n"
		if !c.begun {
			lead, c.begun = "[\n", true
		}
		kept = append(append(kept, lead...), line...)
	}
	c.steps = len(steps)
	return kept
}
