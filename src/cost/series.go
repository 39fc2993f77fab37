package cost

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"dynmo/src/partition"
)

// Phase is consecutive steps in which layers cost the same. A training run is
// a series of them; it is also what a file of costs holds, one JSON object after
// the other. Of steps that were run it says how they went.
type Phase struct {
	Step  int    `json:"step"`            // the first
	Steps int    `json:"steps"`           // how many; 0 in a table that belongs to no run
	Model string `json:"model,omitempty"` // settings that the costs hold for; "" if nobody noted them
	Table
	// Scale is by layer and microbatch: how many times its seconds that microbatch
	// takes, for dynamism that treats microbatches differently. Absent means 1.
	Scale [][]float64 `json:"scale,omitempty"`
	// Change is what changed the model before the first step, "" if nothing did.
	Change string `json:"change,omitempty"`
	Run    *Run   `json:"run,omitempty"` // absent where nothing was run
}

// Run is how the steps of a stretch went.
type Run struct {
	Cuts         partition.Partition `json:"cuts"`     // of virtual stages
	Schedule     string              `json:"schedule"` // the kind that was executed
	Stages       int                 `json:"stages"`
	Microbatches int                 `json:"microbatches"`
	Vee          bool                `json:"vee,omitempty"`        // virtual stages lie in a V (see partition.Map)
	Order        []string            `json:"order,omitempty"`      // by stage, as schedule.Lines writes it; of a schedule that does not follow from the numbers
	Latency      float64             `json:"latency_seconds"`      // of messages, as the run took it
	Bandwidth    float64             `json:"bandwidth_bytes"`      // likewise; 0: infinite
	DelayMost    float64             `json:"delay_most,omitempty"` // likewise: random factor of messages, and its seed
	Seed         uint64              `json:"seed,omitempty"`
	Step         int                 `json:"step"`     // the one with this makespan
	Makespan     float64             `json:"makespan"` // seconds, median over the steps
	// Scale is by virtual stage and microbatch, of the step with that makespan: how
	// many times the forward, backward-input and backward-weight seconds of its
	// layers it took. Machines are never quite even, and the slowest of many takes
	// longer than the mean of all. Stands for the stretch's Scale where that is
	// absent.
	Scale [][]Stage `json:"scale,omitempty"`
}

// What no run has: a file that says so is damaged, and would cost time or memory.
const (
	mostSteps        = 1_000_000_000
	mostMicrobatches = 100_000
	leastSeconds     = 1e-12
	mostSeconds      = 1e9
)

// Series is a run as stretches, ascending and without gaps.
type Series []Phase

// ReadSeries reads a file of costs of that many layers (0: whatever it has).
// name is what errors call it. The error names the stretch and the field that
// is wrong: no stretch at all, other numbers of layers, negative or missing
// seconds, steps that overlap or leave a gap.
func ReadSeries(name string, r io.Reader, layers int) (Series, error) {
	var list Series
	for in := json.NewDecoder(r); ; {
		var s Phase
		switch err := in.Decode(&s); {
		case errors.Is(err, io.EOF) && len(list) == 0:
			return nil, fmt.Errorf("%s: no cost table, want at least one", name)
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("%s: table %d: %w", name, len(list), err)
		}
		if layers == 0 {
			layers = len(s.Layers)
		}
		err := s.check(layers)
		if n := len(list); err == nil && n > 0 && s.Step != list[n-1].Step+list[n-1].Steps {
			err = fmt.Errorf("step: %d, want %d, where the table before ends", s.Step, list[n-1].Step+list[n-1].Steps)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: table %d: %w", name, len(list), err)
		}
		list = append(list, s)
	}
}

// check refuses what no simulation could be trusted with.
func (s Phase) check(layers int) error {
	if n := len(s.Layers); n == 0 || n != layers {
		return fmt.Errorf("layers: %d, want %d", n, max(layers, 1))
	}
	if s.Step < 0 || s.Steps < 0 || s.Step > mostSteps || s.Steps > mostSteps {
		return fmt.Errorf("steps: %d from %d, want neither below 0 or above %d", s.Steps, s.Step, mostSteps)
	}
	total := 0.0
	for l, layer := range s.Layers {
		b := layer.Bytes
		for _, f := range []struct {
			field string
			value float64
		}{
			{"forward", layer.Forward}, {"backward_input", layer.BackwardInput}, {"backward_weight", layer.BackwardWeight},
			{"output", float64(layer.Output)}, {"non_zeros", float64(layer.NonZeros)},
			{"bytes", float64(min(b.Parameters, b.Gradients, b.Optimizer, b.Workspace, b.Activations, b.Held))},
		} {
			if !(f.value >= 0) || math.IsInf(f.value, 1) {
				return fmt.Errorf("layers[%d].%s: %v, want a finite number >= 0", l, f.field, f.value)
			}
		}
		total += layer.Seconds()
	}
	if math.IsInf(total, 1) {
		return errors.New("layers: seconds sum to infinity")
	}
	if !(s.Gap >= 0 && s.Gap <= mostSeconds) {
		return fmt.Errorf("gap: %v, want seconds from 0 to %g", s.Gap, float64(mostSeconds))
	}
	if err := checkScale("scale", s.Scale, layers); err != nil {
		return err
	}
	if s.Run != nil {
		for field, list := range map[string][]float64{"slow": s.Slow, "fixed": s.Fixed} {
			if n := len(list); n != 0 && n != s.Run.Stages {
				return fmt.Errorf("%s: %d numbers, want one for each of run.stages = %d", field, n, s.Run.Stages)
			}
		}
		return s.Run.check(layers)
	}
	return nil
}

// check refuses a run that no schedule could have been.
func (r Run) check(layers int) error {
	n := r.Cuts.Stages()
	switch {
	case n < 1:
		return errors.New("run.cuts: none")
	case r.Stages < 1 || n%r.Stages != 0:
		return fmt.Errorf("run.stages: %d, want a divisor of the %d virtual stages of run.cuts", r.Stages, n)
	case r.Microbatches < 1 || r.Microbatches > mostMicrobatches:
		return fmt.Errorf("run.microbatches: %d, want 1 to %d", r.Microbatches, mostMicrobatches)
	case !(r.Latency >= 0 && r.Latency <= mostSeconds) || !(r.Bandwidth >= 0):
		return fmt.Errorf("run: latency %v and bandwidth %v, want neither below 0 and a latency of at most %g", r.Latency, r.Bandwidth, float64(mostSeconds))
	case !(r.Makespan >= leastSeconds && r.Makespan <= mostSeconds):
		return fmt.Errorf("run.makespan: %v, want seconds from %g to %g", r.Makespan, leastSeconds, float64(mostSeconds))
	}
	if err := r.Cuts.Check(layers, n, false); err != nil {
		return fmt.Errorf("run.cuts: %w", err)
	}
	if rows := len(r.Scale); rows != 0 && rows != n {
		return fmt.Errorf("run.scale: %d rows, want %d", rows, n)
	}
	for v, row := range r.Scale {
		for m, x := range row {
			if least := min(x.Forward, x.Input, x.Weight); !(least >= 0) || math.IsInf(x.Seconds(), 1) {
				return fmt.Errorf("run.scale[%d][%d]: %v, want finite numbers >= 0", v, m, x)
			}
		}
	}
	return nil
}

// checkScale refuses factors that are none, or rows that are too many or too few.
func checkScale(field string, rows [][]float64, want int) error {
	if n := len(rows); n != 0 && n != want {
		return fmt.Errorf("%s: %d rows, want %d", field, n, want)
	}
	for i, row := range rows {
		for m, x := range row {
			if !(x >= 0) || math.IsInf(x, 1) {
				return fmt.Errorf("%s[%d][%d]: %v, want a finite number >= 0", field, i, m, x)
			}
		}
	}
	return nil
}

// UnmarshalJSON reads a layer. Seconds must be there: one that is left out is
// not one that costs nothing.
func (l *Layer) UnmarshalJSON(text []byte) error {
	type plain Layer // without this method
	seconds := struct {
		*plain
		Forward        *float64 `json:"forward"`
		BackwardInput  *float64 `json:"backward_input"`
		BackwardWeight *float64 `json:"backward_weight"`
	}{plain: (*plain)(l)}
	if err := json.Unmarshal(text, &seconds); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		from *float64
		to   *float64
	}{
		{"forward", seconds.Forward, &l.Forward},
		{"backward_input", seconds.BackwardInput, &l.BackwardInput},
		{"backward_weight", seconds.BackwardWeight, &l.BackwardWeight},
	} {
		if f.from == nil {
			return fmt.Errorf("layer %q: %s is missing", l.Name, f.name)
		}
		*f.to = *f.from
	}
	return nil
}
