package study

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/lab/verdict"
	"dynmo/src/plan"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// Run is the record of a simulated run, summed up. It is a record.Observer.
type Run struct {
	Tally     verdict.Tally
	Segments  []Segment
	Timelines []trace.Step

	Steps       int
	Seconds     float64    // steps, and balancing after them
	Moving      float64    // the part of moves
	Measuring   float64    // the part of measuring
	Deciding    float64    // the part of decisions
	RankSeconds float64    // seconds of every rank that holds layers, added up
	Moves       int        // of layers
	Moved       int64      // bytes
	Idle        trace.Idle // seconds of all steps

	work, best float64        // seconds of all steps; the same if any cuts were possible, see Ceiling
	moving     float64        // of the newest steps: it counts for the ranks to which layers move
	chunks     bool           // stages hold several chunks
	events     []record.Event // of the next segment
	copied     int64          // see Segment
}

// Segment is consecutive steps of a run that are alike, as a line of metrics for all of them. What
// balancing takes after them is a mean.
type Segment struct {
	record.Metrics
	Change string `json:"change,omitempty"`       // of the model, before the first step
	Moves  int    `json:"moves,omitempty"`        // of layers, before the first step; several if one step stands for others
	Moved  int64  `json:"moved_bytes,omitempty"`  // in these moves
	Placed int    `json:"pieces_moved,omitempty"` // moves of pieces of layers or their copies before the first step
	Copied int64  `json:"copied_bytes,omitempty"` // that the busiest rank sends or receives in a step because of copies of pieces
}

// Stages returns the number of stages.
func (s Segment) Stages() int { return len(s.LayersPerStage) }

// Rest returns the seconds of a step outside its makespan: the sums of gradients over replicas that no
// work hides, and copies of pieces.
func (s Segment) Rest() float64 { return float64(s.StepSeconds - s.Makespan) }

// Step takes some equal steps.
func (r *Run) Step(m record.Metrics) error {
	r.Tally.Step(m)
	s := Segment{Metrics: m}
	s.Steps = m.Next() - m.Step
	r.begin(&s)
	if n := len(r.Segments) - 1; n >= 0 && r.Segments[n].continues(s) {
		r.Segments[n].join(s)
	} else {
		r.Segments = append(r.Segments, s)
	}
	n := float64(s.Steps)
	work, spent, moving := n*float64(m.StepSeconds), n*float64(m.BalanceSeconds), n*float64(m.MoveSeconds)
	r.Steps, r.Moves, r.Moved = r.Steps+s.Steps, r.Moves+s.Moves, r.Moved+s.Moved
	r.Seconds += work + spent
	r.Measuring += n * float64(m.MeasureSeconds)
	r.Moving += moving
	r.Deciding += max(0, n*float64(m.BalanceSeconds-m.MeasureSeconds-m.MoveSeconds)) // rounding may make it negative
	r.RankSeconds += float64(m.Ranks) * (r.moving + work + spent - moving)
	r.moving = moving
	r.Idle = r.Idle.Plus(m.Idle, n)
	r.work += work
	r.best += work / float64(m.Headroom)
	r.chunks = r.chunks || len(m.Cuts)-1 > s.Stages()
	return nil
}

// begin adds to a segment the events before its first step. The events after that step are kept.
func (r *Run) begin(s *Segment) {
	var kept []record.Event
	for _, e := range r.events {
		switch {
		case e.Kind == record.Dynamic:
			s.Change, _ = e.Detail["what"].(string)
		case e.Step >= s.Step:
			kept = append(kept, e)
		case e.Kind == record.Place:
			var d struct{ Placed plan.Placed }
			if e.Read(&d) == nil {
				r.copied = d.Placed.Copied
			}
			s.Placed += max(1, e.Count)
		case e.Moved():
			s.Moves += max(1, e.Count)
			s.Moved += e.Bytes
		}
	}
	s.Copied, r.events = r.copied, kept
}

// continues reports whether steps are like those of the segment, and nothing happened in between.
func (s Segment) continues(next Segment) bool {
	return next.Change == "" && next.Moves == 0 && next.Placed == 0 && next.Ranks == s.Ranks && next.Schedule == s.Schedule &&
		next.StepSeconds == s.StepSeconds && slices.Equal(next.Cuts, s.Cuts)
}

// join adds steps to the segment.
func (s *Segment) join(next Segment) {
	all := float64(s.Steps + next.Steps)
	mean := func(a *record.Float, b record.Float) {
		*a = (*a*record.Float(s.Steps) + b*record.Float(next.Steps)) / record.Float(all)
	}
	mean(&s.BalanceSeconds, next.BalanceSeconds)
	mean(&s.MeasureSeconds, next.MeasureSeconds)
	mean(&s.MoveSeconds, next.MoveSeconds)
	s.Idle.Balancing = float64(s.BalanceSeconds)
	s.Steps, s.WallSeconds = s.Steps+next.Steps, next.WallSeconds
}

// Event takes an event.
func (r *Run) Event(e record.Event) error {
	r.Tally.Event(e)
	r.events = append(r.events, e)
	return nil
}

// Costs takes the costs of a phase.
func (r *Run) Costs(p record.Phase) error {
	r.Tally.Costs(p)
	return nil
}

// Trace takes a timeline.
func (r *Run) Trace(s trace.Step) error {
	r.Timelines = append(r.Timelines, s)
	return nil
}

// Say takes a line for people, which says what other calls do.
func (r *Run) Say(string) {}

// Ceiling returns the largest speedup over a static run that any balancer can have on the
// same work, as balance.Headroom estimates it. With t the time of a phase on the first
// cuts it is
//
//	Σ t / Σ (t / ceiling)
//
// It is 0 where stages hold several chunks, which the estimate does not know.
func (r *Run) Ceiling() float64 {
	if r.chunks {
		return 0
	}
	return r.work / r.best
}

// Error returns the standard error of the mean step time of a run that was sampled,
// relative to it: what the steps vary by from one that was simulated to the next.
func (r *Run) Error(sampling Sampling) float64 {
	sum, squares, n := 0.0, 0.0, 0.0
	for _, s := range r.Segments {
		if x := float64(s.StepSeconds); sampling.Interval > 1 && s.Step >= sampling.From {
			sum, squares, n = sum+x, squares+x*x, n+1
		}
	}
	if n < 2 {
		return 0
	}
	mean := sum / n
	return math.Sqrt(max(0, squares/n-mean*mean)/(n-1)) / mean
}

// both passes a record on to two observers.
type both [2]record.Observer

func (b both) Step(m record.Metrics) error { return cmp.Or(b[0].Step(m), b[1].Step(m)) }
func (b both) Event(e record.Event) error  { return cmp.Or(b[0].Event(e), b[1].Event(e)) }
func (b both) Costs(p record.Phase) error  { return cmp.Or(b[0].Costs(p), b[1].Costs(p)) }
func (b both) Trace(s trace.Step) error    { return cmp.Or(b[0].Trace(s), b[1].Trace(s)) }
func (b both) Say(line string)             { b[0].Say(line); b[1].Say(line) }
