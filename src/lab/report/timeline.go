package report

import (
	"fmt"
	"math"

	"dynmo/src/trace"
)

// timelines is the recorded steps in the form that the page's script draws.
type timelines struct {
	Kinds []string       `json:"kinds"` // names of the kinds, which Stages give as numbers
	Unit  float64        `json:"unit"`  // seconds of one unit of starts and lengths
	Steps []timelineStep `json:"steps"`
	First [2]int         `json:"first"` // indices of the steps that are shown at first
	// Used is the kinds that occur in the steps.
	Used []string `json:"-"`
	// Left is the number of recorded steps that are left out to keep the page small.
	Left int `json:"-"`
}

// timelineStep is a step. A stage has five numbers for every span: kind, microbatch (-1 outside the
// schedule), chunk, units since the end of the previous span, and length in units. Time 0 is the
// start of the step's first span.
type timelineStep struct {
	Label  string  `json:"label"`
	Stages [][]int `json:"stages"`
	// Places is the place of every stage; absent if it is not known.
	Places []string `json:"places,omitempty"`

	step int
}

const (
	timelineUnits = 1_000_000 // units in the longest step
	mostSpans     = 250_000   // largest number of spans on a page: about 4 MB
)

// timelines returns the recorded steps, nil if there are none. move is the step after which layers
// moved, or -1.
func (r Run) timelines(move int, at places) *timelines {
	if len(r.Timelines) == 0 {
		return nil
	}
	t := &timelines{}
	for k := trace.F; k <= trace.Optimizer; k++ {
		t.Kinds = append(t.Kinds, k.String())
	}
	longest, used := 0.0, make([]bool, len(t.Kinds))
	for _, recorded := range r.Timelines {
		begin, end := bounds(recorded)
		longest = max(longest, end-begin)
		for _, list := range recorded.Stages {
			for _, s := range list {
				used[s.Op] = true
			}
		}
	}
	for k, name := range t.Kinds {
		if used[k] {
			t.Used = append(t.Used, name)
		}
	}
	t.Unit = max(longest, 1e-9) / timelineUnits
	spans := 0
	for i, recorded := range r.Timelines {
		for _, list := range recorded.Stages {
			spans += len(list)
		}
		if spans > mostSpans && i > 1 {
			t.Left = len(r.Timelines) - i
			break
		}
		t.Steps = append(t.Steps, t.compact(recorded, at))
	}
	t.First[1] = len(t.Steps) - 1
	if move >= 0 {
		for i, s := range t.Steps {
			if s.step <= move {
				t.First[0] = i
			}
			if s.step > move {
				t.First[1] = i
				break
			}
		}
	}
	return t
}

func (t *timelines) compact(recorded trace.Step, at places) timelineStep {
	begin, _ := bounds(recorded)
	s := timelineStep{Label: fmt.Sprintf("step %d", recorded.Step), step: recorded.Step}
	for stage, list := range recorded.Stages {
		if place := at.of(s.step, stage, 0); place != "" {
			s.Places = append(s.Places, place)
		}
		row, last := make([]int, 0, 5*len(list)), 0
		for _, sp := range list {
			start := int(math.Round((sp.Start - begin) / t.Unit))
			end := int(math.Round((sp.End - begin) / t.Unit))
			row = append(row, int(sp.Op), sp.Microbatch, sp.Chunk, start-last, end-start)
			last = end
		}
		s.Stages = append(s.Stages, row)
	}
	return s
}

// bounds returns the start of a step's first span and the end of its last span.
func bounds(t trace.Step) (begin, end float64) {
	begin, end = math.Inf(1), math.Inf(-1)
	for _, list := range t.Stages {
		for _, s := range list {
			begin, end = min(begin, s.Start), max(end, s.End)
		}
	}
	return begin, end
}
