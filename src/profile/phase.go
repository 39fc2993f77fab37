package profile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"dynmo/src/cost"
	"dynmo/src/input"
	"dynmo/src/layout"
)

// Phase is consecutive steps with one model and one layout, as a run records them: the costs of
// layers and, if the steps were run, how they went. A file of costs has one JSON object a phase,
// one after the other.
type Phase struct {
	cost.Phase
	Run *Run `json:"run,omitempty"` // absent where nothing was run
	// Samples are some of the measurements that the costs were estimated from, by step,
	// layer and microbatch: how many times the layer's seconds the microbatch took.
	// Absent in files of older versions.
	Samples [][][]cost.Stage `json:"samples,omitempty"`
	// Known is the input of the estimator, by step. Absent in files of older versions, and
	// where layers work on some tokens only.
	Known []Known `json:"known,omitempty"`
}

// Run is how the steps of a phase went.
type Run struct {
	Layout    layout.Layout `json:"layout"`
	Latency   float64       `json:"latency_seconds"`      // of messages, as the run took it
	Bandwidth float64       `json:"bandwidth_bytes"`      // likewise; 0: infinite
	DelayMost float64       `json:"delay_most,omitempty"` // likewise: random factor of messages, and its seed
	Seed      uint64        `json:"seed,omitempty"`
	Resumed   bool          `json:"resumed,omitempty"` // the phase is the first since the run was resumed
	Step      int           `json:"step"`              // the one with this makespan
	Makespan  float64       `json:"makespan"`          // seconds, median over the steps
	// Rest is the seconds of a step outside its makespan, for updates, as Location has
	// it over the steps; Balancing what measuring, deciding and moving took after them,
	// all together.
	Rest      float64 `json:"rest_seconds,omitempty"`
	Balancing float64 `json:"balancing_seconds,omitempty"`
	// Scale is by virtual stage and microbatch, of the step with that makespan: how
	// many times the forward, backward-input and backward-weight seconds of its
	// layers it took. Machines are never quite even, and the slowest of many takes
	// longer than the mean of all.
	Scale [][]cost.Stage `json:"scale,omitempty"`
}

// UnmarshalJSON reads a run. Files of older versions have the fields of its layout
// beside the others.
func (r *Run) UnmarshalJSON(b []byte) error {
	type plain Run // without this method
	if err := json.Unmarshal(b, (*plain)(r)); err != nil || r.Layout.Stages() > 0 {
		return err
	}
	if err := json.Unmarshal(b, &r.Layout); err != nil {
		return fmt.Errorf("run.layout: %w", err)
	}
	return nil
}

// Stay returns the layout in which the phase would have been, had none changed since the
// first: that one or, behind a resume on other stages, replicas or microbatches, its own.
func (r *Run) Stay(first layout.Layout) layout.Layout {
	l := r.Layout
	if r.Resumed && (first.Mesh != l.Mesh || first.Schedule.Microbatches != l.Schedule.Microbatches) {
		return l
	}
	return first
}

// Costs returns what the layers cost, with the measured share of every
// microbatch of the run where the phase says nothing else.
func (p Phase) Costs() cost.Phase {
	if p.Scale != nil {
		return p.Phase
	}
	return p.Measured()
}

// Measured returns the measured costs of the layers, with the seconds of each microbatch if the
// phase was run.
func (p Phase) Measured() cost.Phase {
	c := p.Phase
	if p.Run == nil || len(p.Run.Scale) == 0 {
		return c
	}
	c.Factors = make([][]cost.Stage, len(c.Layers))
	for l := range c.Factors {
		c.Factors[l] = p.Run.Scale[p.Run.Layout.Cuts.Stage(l)]
	}
	return c
}

// Series is a run as phases, ascending and without gaps.
type Series []Phase

// Costs returns the costs of the layers in every phase, with the measured shares of microbatches
// (see Phase.Costs). Microbatches have the size of the first phase.
func (s Series) Costs() cost.Series { return s.within(Phase.Costs) }

// Even is Costs without the measured shares.
func (s Series) Even() cost.Series { return s.within(func(p Phase) cost.Phase { return p.Phase }) }

// within returns the costs of phases in microbatches of the size of the first phase: packing may
// have made microbatches larger. A run that is resumed on other stages, replicas or microbatches
// has a new first phase.
func (s Series) within(of func(Phase) cost.Phase) cost.Series {
	list := make(cost.Series, len(s))
	var first *Phase
	for i, p := range s {
		list[i] = of(p)
		if p.Run == nil {
			continue
		}
		if first == nil || !p.Run.Stay(first.Run.Layout).Equal(first.Run.Layout) {
			first = &s[i]
		}
		if from, to := p.Run.Layout.Schedule.Microbatches, first.Run.Layout.Schedule.Microbatches; from != to {
			list[i] = list[i].Regroup(from, to)
			list[i].Model = first.Model
		}
	}
	return list
}

// Halved returns every other phase of a series. Each stands for the steps of the one
// behind it too, and for what balancing took there. That the run was resumed with that one
// the next says.
func (s Series) Halved() Series {
	out := make(Series, 0, (len(s)+1)/2)
	for i := 0; i < len(s); i += 2 {
		p := s[i]
		if i+1 < len(s) {
			p.Steps += s[i+1].Steps
			if next := s[i+1].Run; p.Run != nil && next != nil {
				run := *p.Run
				run.Balancing += next.Balancing
				p.Run = &run
			}
		}
		if i > 0 && p.Run != nil && s[i-1].Run != nil && s[i-1].Run.Resumed {
			run := *p.Run
			run.Resumed = true
			p.Run = &run
		}
		out = append(out, p)
	}
	return out
}

// ReadSeries reads a file of costs of that many layers (0: whatever it has).
// name is what errors call it. The error names the phase and the field that is
// wrong: no phase at all, other numbers of layers, negative or missing seconds,
// steps that overlap or leave a gap.
func ReadSeries(name string, r io.Reader, layers int) (Series, error) {
	list, _, err := readSeries(name, r, layers)
	return list, err
}

// readSeries is ReadSeries, and reports whether a phase has a key of older versions.
func readSeries(name string, r io.Reader, layers int) (list Series, older bool, err error) {
	for in := json.NewDecoder(r); ; {
		p, renamed, err := decode(in)
		older = older || renamed
		switch {
		case errors.Is(err, io.EOF) && len(list) == 0:
			return nil, false, fmt.Errorf("%s: no cost table, want at least one", name)
		case errors.Is(err, io.EOF):
			return list, older, nil
		case err != nil:
			if _, syntax := errors.AsType[*json.SyntaxError](err); syntax {
				err = fmt.Errorf("%w: want a file of dynmo profile CONFIG -o FILE, or costs.jsonl of a run", err)
			}
			return nil, false, fmt.Errorf("%s: table %d: %w", name, len(list), err)
		}
		if layers == 0 {
			layers = len(p.Layers)
		}
		err = p.check(layers)
		if n := len(list); err == nil && n > 0 && p.Step != list[n-1].Step+list[n-1].Steps {
			err = fmt.Errorf("step: %d, want %d, where the table before ends", p.Step, list[n-1].Step+list[n-1].Steps)
		}
		if err != nil {
			return nil, false, fmt.Errorf("%s: table %d: %w", name, len(list), err)
		}
		list = append(list, p)
	}
}

// decode reads the next phase, and reports whether it has the key "gap" of older versions.
// A key that means nothing, or stands twice, is an error.
func decode(in *json.Decoder) (p Phase, older bool, err error) {
	var text json.RawMessage
	if err := in.Decode(&text); err != nil {
		return p, false, err
	}
	var read struct {
		Phase
		Gap *float64 `json:"gap"` // Dispatch
	}
	if err := input.CheckKeys(text, read); err != nil {
		return p, false, err
	}
	if err := input.Mistyped(json.Unmarshal(text, &read)); err != nil {
		return p, false, err
	}
	if read.Gap == nil {
		return read.Phase, false, nil
	}
	read.Dispatch = cmp.Or(read.Dispatch, *read.Gap)
	return read.Phase, true, nil
}

// leastSeconds bounds a makespan: a file that says less is damaged, and would cost
// time.
const leastSeconds = 1e-12

// check refuses what no simulation could be trusted with.
func (p Phase) check(layers int) error {
	if err := cmp.Or(p.Phase.Check(layers), p.checkSamples(layers), p.checkKnown(layers)); err != nil || p.Run == nil {
		return err
	}
	r := p.Run
	for field, list := range map[string][]float64{"slow": p.Slow, "fixed": p.Fixed} {
		if n := len(list); n != 0 && n != r.Layout.Stages() {
			return fmt.Errorf("%s: %d numbers, want one for each of run.layout.stages = %d", field, n, r.Layout.Stages())
		}
	}
	switch {
	case !(r.Latency >= 0 && r.Latency <= cost.MostLatency):
		return fmt.Errorf("run.latency_seconds: %v, want 0 to %v", r.Latency, cost.MostLatency)
	case r.Bandwidth != 0 && !(r.Bandwidth >= cost.LeastBandwidth && r.Bandwidth <= cost.MostBandwidth):
		return fmt.Errorf("run.bandwidth_bytes: %v, want 0 (infinite) or %g to %g", r.Bandwidth, cost.LeastBandwidth, cost.MostBandwidth)
	case !(min(r.Rest, r.Balancing) >= 0 && max(r.Rest, r.Balancing) <= cost.MostSeconds):
		return fmt.Errorf("run: rest_seconds %v and balancing_seconds %v, want both from 0 to %g", r.Rest, r.Balancing, cost.MostSeconds)
	case !(r.Makespan >= leastSeconds && r.Makespan <= cost.MostSeconds):
		return fmt.Errorf("run.makespan: %v, want seconds from %g to %g", r.Makespan, leastSeconds, cost.MostSeconds)
	}
	if n := r.Layout.Cuts.Layers(); n != layers {
		return fmt.Errorf("run.layout.cuts: %d layers, want %d", n, layers)
	}
	virtual := r.Layout.Map().Virtual()
	if rows := len(r.Scale); rows != 0 && rows != virtual {
		return fmt.Errorf("run.scale: %d rows, want %d", rows, virtual)
	}
	return checkFactors("run.scale", r.Scale)
}

// checkFactors refuses factors that no measurement gives.
func checkFactors(field string, rows [][]cost.Stage) error {
	for v, row := range rows {
		for m, x := range row {
			if least := min(x.Forward, x.Input, x.Weight); !(least >= 0) || math.IsInf(x.Seconds(), 1) {
				return fmt.Errorf("%s[%d][%d]: %v, want finite numbers >= 0", field, v, m, x)
			}
		}
	}
	return nil
}

// checkSamples wants of every step a row for each layer, and in it a microbatch at
// least.
func (p Phase) checkSamples(layers int) error {
	for step, rows := range p.Samples {
		field := fmt.Sprintf("samples[%d]", step)
		if len(rows) != layers {
			return fmt.Errorf("%s: %d rows, want %d", field, len(rows), layers)
		}
		for l, row := range rows {
			if len(row) == 0 {
				return fmt.Errorf("%s[%d]: no microbatch, want at least one", field, l)
			}
		}
		if err := checkFactors(field, rows); err != nil {
			return err
		}
	}
	return nil
}

// OpenSeries is ReadSeries of a file. The notes say that a torn last line is left out,
// and that a key has another name now.
func OpenSeries(path string, layers int) (series Series, notes []string, err error) {
	text, err := input.Read(path, input.Records)
	if err != nil {
		return nil, nil, err
	}
	text, torn := input.Whole(path, text)
	series, older, err := readSeries(path, bytes.NewReader(text), layers)
	if err != nil && torn != "" {
		err = fmt.Errorf("%w (%s)", err, torn)
	}
	if torn != "" {
		notes = append(notes, torn)
	}
	if older {
		notes = append(notes, path+": gap is called dispatch_seconds now")
	}
	return series, notes, err
}

// Keys returns values with the keys of a run, those of older versions too.
func (Run) Keys() []any {
	type plain Run // without this method
	return append(Run{}.Layout.Keys(), plain{})
}
