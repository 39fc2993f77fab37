package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"dynmo/src/cost"
	"dynmo/src/files"
	"dynmo/src/layout"
)

// Phase is consecutive steps with one model and one layout, as a run records them. It has the costs
// of layers and, if the steps were run, their course. A file of costs has one JSON object for each
// phase, in order.
type Phase struct {
	cost.Phase
	Run *Course `json:"run,omitempty"` // absent if nothing was run
	// Samples are some of the measurements behind the costs, by step, layer and microbatch. Each is
	// the seconds of a microbatch divided by those of the layer. Absent in files of older versions.
	Samples [][][]cost.Stage `json:"samples,omitempty"`
	// Known is the input of the estimator, by step. Absent in files of older versions, and if
	// layers work on only some of the tokens.
	Known []cost.Known `json:"known,omitempty"`
}

// Course is the course of the steps of a phase.
type Course struct {
	Layout    layout.Layout `json:"layout"`
	Latency   float64       `json:"latency_seconds"`      // seconds of latency of a message, as the run assumed it
	Bandwidth float64       `json:"bandwidth_bytes"`      // bytes per second of messages, likewise; 0: infinite
	Between   *Between      `json:"between,omitempty"`    // of two nodes, if messages take longer between them
	DelayMost float64       `json:"delay_most,omitempty"` // random delay of messages: largest factor, likewise; Seed is its seed
	Seed      uint64        `json:"seed,omitempty"`
	Simulated bool          `json:"simulated,omitempty"` // no rank ran the steps
	Resumed   bool          `json:"resumed,omitempty"`   // the phase is the first since the run was resumed
	Step      int           `json:"step"`                // the step whose makespan is Makespan
	Makespan  float64       `json:"makespan"`            // seconds, median over the steps
	// Rest is the seconds of a step outside its makespan, for updates: cost.Location over the
	// steps. Balancing is the total seconds of measuring, deciding and moving after the steps.
	Rest      float64 `json:"rest_seconds,omitempty"`
	Balancing float64 `json:"balancing_seconds,omitempty"`
	// Scale is by virtual stage and microbatch of the step Step. It is the forward, backward-input
	// and backward-weight seconds, divided by those of the stage's layers. Machines are never quite
	// equal, and the slowest of many takes longer than their mean.
	Scale [][]cost.Stage `json:"scale,omitempty"`
}

// Between is what messages between two nodes take.
type Between struct {
	PerNode   int     `json:"ranks_per_node"`
	Latency   float64 `json:"latency_seconds"`
	Bandwidth float64 `json:"bandwidth_bytes"` // 0: infinite
}

// UnmarshalJSON reads a run. Files of older versions have the fields of its layout
// beside the others.
func (r *Course) UnmarshalJSON(b []byte) error {
	type plain Course // without this method
	if err := json.Unmarshal(b, (*plain)(r)); err != nil || r.Layout.Stages() > 0 {
		return err
	}
	if err := json.Unmarshal(b, &r.Layout); err != nil {
		return fmt.Errorf("run.layout: %w", err)
	}
	return nil
}

// IsSimulated reports whether the steps of the phase were simulated.
func (p Phase) IsSimulated() bool { return p.Run != nil && p.Run.Simulated }

// Stay returns the layout that the phase would have had if no layer had ever moved. That is
// `first`. After a resume on other stages, replicas or microbatches it is the phase's own layout.
func (r *Course) Stay(first layout.Layout) layout.Layout {
	l := r.Layout
	if r.Resumed && (first.Mesh != l.Mesh || first.Schedule.Microbatches != l.Schedule.Microbatches) {
		return l
	}
	return first
}

// Costs returns the costs of the layers. If the phase has no Scale of its own, the measured share
// of every microbatch is used.
func (p Phase) Costs() cost.Phase {
	if p.Scale != nil {
		return p.Phase
	}
	return p.Measured()
}

// Measured returns the measured costs of the layers. If the phase was run they include the seconds
// of each microbatch.
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

// Series is the phases of a run, ascending and without gaps.
type Series []Phase

// Costs returns the costs of the layers in every phase, with the measured shares of microbatches
// (see Phase.Costs). Microbatches have the size of the first phase.
func (s Series) Costs() cost.Series { return s.within(Phase.Costs) }

// Even is Costs without the measured shares.
func (s Series) Even() cost.Series { return s.within(func(p Phase) cost.Phase { return p.Phase }) }

// within applies `of` to every phase and returns costs in microbatches of the size of the first
// phase. Packing may have made microbatches larger. A run that resumes on other stages, replicas or
// microbatches has a new first phase.
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

// Halved returns every other phase of a series. Each also stands for the steps of the phase after
// it and for the balancing there. If the run resumed with a phase that is left out, the next phase
// is marked as resumed.
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

// ReadSeries reads a file of costs with this number of layers (0: any number). name is the file's
// name in errors. An error names the phase and the field that is wrong. Errors are: no phase at
// all, other numbers of layers, negative or missing seconds, and steps that overlap or leave a gap.
func ReadSeries(name string, r io.Reader, layers int) (Series, error) {
	list, _, err := readSeries(name, r, layers)
	return list, err
}

// readSeries is ReadSeries. It also reports whether a phase has a key of older versions.
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
				err = fmt.Errorf("%w: want a file of dynmo profile or dynmo costs, or costs.jsonl of a run", err)
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

// decode reads the next phase, and reports whether it has the key "gap" of older versions. An
// unknown or repeated key is an error.
func decode(in *json.Decoder) (p Phase, older bool, err error) {
	var text json.RawMessage
	if err := in.Decode(&text); err != nil {
		return p, false, err
	}
	var read struct {
		Phase
		Gap *float64 `json:"gap"` // Dispatch
	}
	if err := files.CheckKeys(text, read); err != nil {
		return p, false, err
	}
	if err := files.Mistyped(json.Unmarshal(text, &read)); err != nil {
		return p, false, err
	}
	if read.Run != nil && read.Clock == Simulated { // as older versions marked generated costs of a simulated run
		read.Run.Simulated = true
		if read.Device != "" {
			read.Clock = cost.Estimated
		}
	}
	if read.Gap == nil {
		return read.Phase, false, nil
	}
	read.Dispatch = cmp.Or(read.Dispatch, *read.Gap)
	return read.Phase, true, nil
}

// leastSeconds is the smallest valid makespan. A file with a smaller one is damaged, and a
// simulation of it would take too long.
const leastSeconds = 1e-12

// check returns an error for values that would make a simulation meaningless.
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
	if err := checkLink("run", r.Latency, r.Bandwidth); err != nil {
		return err
	}
	if b := r.Between; b != nil {
		if b.PerNode < 1 {
			return fmt.Errorf("run.between.ranks_per_node: %d, want at least 1", b.PerNode)
		}
		if err := checkLink("run.between", b.Latency, b.Bandwidth); err != nil {
			return err
		}
	}
	switch {
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

// checkLink returns an error for a latency or bandwidth that no network has.
func checkLink(field string, latency, bandwidth float64) error {
	switch {
	case !(latency >= 0 && latency <= cost.MostLatency):
		return fmt.Errorf("%s.latency_seconds: %v, want 0 to %v", field, latency, cost.MostLatency)
	case bandwidth != 0 && !(bandwidth >= cost.LeastBandwidth && bandwidth <= cost.MostBandwidth):
		return fmt.Errorf("%s.bandwidth_bytes: %v, want 0 (infinite) or %g to %g", field, bandwidth, cost.LeastBandwidth, cost.MostBandwidth)
	}
	return nil
}

// checkFactors returns an error for factors that are negative or not finite.
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

// checkSamples returns an error unless every step has a row for each layer, and every row at least
// one microbatch.
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

// OpenSeries is ReadSeries of the file at path. The notes report that a torn last line was left
// out, and that a key has another name now.
func OpenSeries(path string, layers int) (series Series, notes []string, err error) {
	in, torn, err := files.Records(path)
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	series, older, err := readSeries(path, in, layers)
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

// Keys returns values whose fields are the keys of a run, including those of older versions.
func (Course) Keys() []any {
	type plain Course // without this method
	return append(Course{}.Layout.Keys(), plain{})
}

// checkKnown returns an error if a phase has more Known than steps, or one that is wrong.
func (p Phase) checkKnown(layers int) error {
	if n := len(p.Known); n > p.Steps {
		return fmt.Errorf("known: %d steps, want at most %d", n, p.Steps)
	}
	for step, k := range p.Known {
		if err := k.Check(layers); err != nil {
			return fmt.Errorf("known[%d].%w", step, err)
		}
	}
	return nil
}
