package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"dynmo/src/trace"
)

// chrome writes timelines of the first replica as Chrome trace events (Trace Event Format, Google
// 2016), which Perfetto opens: an array with an event a line. The replica is a process, a stage a
// thread. The format lets the closing bracket be missing, so
// the file of a run that was killed still opens.
type chrome struct {
	out    io.Writer
	clock  string  // in the replica's name; "" before that has been written
	named  int     // number of stages whose name has been written
	steps  int     // number of steps in the file
	behind float64 // seconds added to the starts of steps: the end of the steps of earlier starts of the run
	begun  bool
	cut    bool // a step is lost, or was written in part: nothing may be written after it
}

// chromeEvent is one event: ph "X" has a start and a duration, "M" gives a replica
// or a stage the name args.name.
type chromeEvent struct {
	Name    string     `json:"name"`
	Cat     string     `json:"cat,omitempty"` // the span's kind
	Phase   string     `json:"ph"`
	Start   micro      `json:"ts"`
	Length  *micro     `json:"dur,omitempty"` // every X event needs it: readers drop an X without a length
	Replica int        `json:"pid"`           // 0
	Stage   int        `json:"tid"`
	Args    chromeArgs `json:"args"`
}

type chromeArgs struct {
	Name       string `json:"name,omitempty"`
	Clock      string `json:"clock,omitempty"`
	Step       *int   `json:"step,omitempty"`
	Microbatch *int   `json:"microbatch,omitempty"` // absent outside the schedule
	Chunk      *int   `json:"chunk,omitempty"`
}

// micro is a time in microseconds, written to the nanosecond.
type micro float64

// MarshalJSON writes three decimals. A number that is not finite is an error.
func (m micro) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(m), 'f', 3, 64), nil
}

// add appends a step with one call of the writer. It does nothing once a step is lost.
func (c *chrome) add(t trace.Step) error {
	if c.cut {
		return nil
	}
	var b bytes.Buffer
	var err error
	event := func(e chromeEvent) {
		lead := ",\n"
		if !c.begun {
			lead, c.begun = "[\n", true
		}
		text, e1 := json.Marshal(e)
		err = errors.Join(err, e1)
		b.WriteString(lead)
		b.Write(text)
	}
	if c.clock != t.Clock {
		c.clock = t.Clock
		event(chromeEvent{Name: "process_name", Phase: "M", Args: chromeArgs{Name: fmt.Sprintf("replica 0, %s clock", t.Clock), Clock: t.Clock}})
	}
	for ; c.named < len(t.Stages); c.named++ {
		event(chromeEvent{Name: "thread_name", Phase: "M", Stage: c.named, Args: chromeArgs{Name: fmt.Sprintf("stage %d", c.named)}})
	}
	for stage, spans := range t.Stages {
		for _, s := range spans {
			length := micro(1e6 * (s.End - s.Start))
			e := chromeEvent{
				Name: instruction(s), Cat: s.Op.String(), Phase: "X", Stage: stage,
				Start: micro(1e6 * (c.behind + s.Start)), Length: &length,
				Args: chromeArgs{Step: &t.Step},
			}
			if s.Microbatch >= 0 {
				e.Args.Microbatch, e.Args.Chunk = &s.Microbatch, &s.Chunk
			}
			event(e)
		}
	}
	if err == nil {
		_, err = c.out.Write(b.Bytes())
	}
	c.cut = c.cut || err != nil
	c.steps++
	return err
}

// close ends the array. It does nothing if add has returned an error.
func (c *chrome) close() error {
	if c.cut {
		return nil
	}
	end := "\n]\n"
	if !c.begun {
		end = "[\n]\n"
	}
	_, err := io.WriteString(c.out, end)
	return err
}

// instruction names a span as schedules do: "F3", or "F3.1" for a chunk other than the first.
// Outside the schedule it is only the kind.
func instruction(s trace.Span) string {
	switch {
	case s.Microbatch < 0:
		return s.Op.String()
	case s.Chunk > 0:
		return fmt.Sprintf("%v%d.%d", s.Op, s.Microbatch, s.Chunk)
	}
	return fmt.Sprintf("%v%d", s.Op, s.Microbatch)
}

// WriteTrace writes the steps of one replica as a complete file that Perfetto can open.
func WriteTrace(w io.Writer, steps []trace.Step) error {
	c := chrome{out: w}
	for _, s := range steps {
		if err := c.add(s); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
	}
	return c.close()
}

// ReadTrace reads a file of Run.Trace or WriteTrace. Timelines are in the order in which their
// steps begin in the file. The last line of a killed run may be damaged and is left out. Any other
// damaged line is an error that names the line. name is the file's name in errors.
func ReadTrace(name string, r io.Reader) ([]trace.Step, error) {
	var list []trace.Step
	where := map[int]int{} // by step: index in list
	clock, named := "", 0  // named: stages that have a name; other stages are invalid
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	var damaged error
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSuffix(strings.TrimSpace(in.Text()), ",")
		if n == 1 && line != "[" {
			return nil, fmt.Errorf("%s:1: %.20q, want the [ of an array of events, one a line", name, line)
		}
		if line == "" || line == "[" {
			continue
		}
		if damaged != nil {
			return nil, damaged
		}
		if line == "]" {
			continue
		}
		var e chromeEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			damaged = fmt.Errorf("%s:%d: %w", name, n, err)
			continue
		}
		switch {
		case e.Phase == "M" && e.Name == "process_name":
			clock = e.Args.Clock
		case e.Phase == "M" && e.Name == "thread_name":
			named++
		}
		if e.Phase != "X" {
			continue
		}
		s, err := e.span(named)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		i, ok := where[*e.Args.Step]
		if !ok {
			i = len(list)
			where[*e.Args.Step] = i
			list = append(list, trace.Step{Step: *e.Args.Step, Clock: clock})
		}
		t := &list[i]
		if behind := len(t.Stages); e.Stage > behind { // every stage works in every step
			return nil, fmt.Errorf("%s:%d: tid: %d, want stage %d of step %d before it", name, n, e.Stage, behind, t.Step)
		} else if e.Stage == behind {
			t.Stages = append(t.Stages, nil)
		}
		t.Stages[e.Stage] = append(t.Stages[e.Stage], s)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}

// span returns the span of an X event; stages is the number of stages.
func (e chromeEvent) span(stages int) (trace.Span, error) {
	start, length := float64(e.Start)/1e6, 0.0
	if e.Length != nil {
		length = float64(*e.Length) / 1e6
	}
	s := trace.Span{Layer: -1, Microbatch: -1, Start: start, End: start + length}
	switch {
	case e.Args.Step == nil:
		return s, errors.New("args.step is missing")
	case e.Stage < 0 || e.Stage >= stages:
		return s, fmt.Errorf("tid: %d, want one of the %d stages named before", e.Stage, stages)
	case !(length >= 0) || math.IsInf(s.End, 0):
		return s, fmt.Errorf("dur: %v, want a number >= 0", 1e6*length)
	}
	if e.Args.Microbatch != nil {
		s.Microbatch = *e.Args.Microbatch
	}
	if e.Args.Chunk != nil {
		s.Chunk = *e.Args.Chunk
	}
	for s.Op = trace.F; s.Op <= trace.Optimizer; s.Op++ {
		if s.Op.String() == e.Cat {
			return s, nil
		}
	}
	return s, fmt.Errorf("cat: %q, want F, I, W, B, reduce or optimizer", e.Cat)
}
