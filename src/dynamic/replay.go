package dynamic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"dynmo/src/config"
	"dynmo/src/files"
	"dynmo/src/model"
)

// Forcing is how the load of a kind follows a file (dynamic.replay) in place of training.
// Training would take days to make the same load.
type Forcing struct {
	Field        string                                   // name of the load in a record of the file
	Most         func(config.Config) int                  // largest load; loads are whole numbers; nil: loads are shares, 0 to 1
	Numbers      func(config.Config) int                  // the numbers in a load, which is a list; nil: a load is one number
	ByMicrobatch bool                                     // the load of each microbatch has a record
	Has          func(model.Description) bool             // whether a layer of the chain has a load
	New          func(config.Config, Loads) (Kind, error) // returns what forces the loads
}

// Loads are the loads of a kind in a file. The loads of a step hold until the next step of the
// file. Before the first step of the file nothing is forced.
type Loads struct {
	Layers       []int // of the chain, ascending
	Microbatches int   // of all replicas; 1 where the loads of all microbatches are equal

	path, field string
	numbers     int // of a load
	steps       []loadedStep
}

// loadedStep is the loads of a step, by layer, then by microbatch, and their lines in the file.
type loadedStep struct {
	step   int
	values []float64 // of each load its numbers
	lines  []int
}

// At returns the loads in a step by layer, then by microbatch, of each its numbers; nil before
// the first step of the file. isFirst reports whether they hold from this step on.
func (l Loads) At(step int) (values []float64, isFirst bool) {
	for _, s := range l.steps {
		if s.step <= step {
			values, isFirst = s.values, s.step == step
		}
	}
	return values, isFirst
}

// of returns the loads of a layer in a step by microbatch, of each its numbers. A microbatch that
// joins several of the settings' has the sum of their loads. It returns nil before the first step
// of the file.
func (l Loads) of(step, layer, joined int) []int {
	values, _ := l.At(step)
	i, each := slices.Index(l.Layers, layer), l.Microbatches*l.numbers
	if values == nil || i < 0 {
		return nil
	}
	list := make([]int, each/joined)
	for k, v := range values[i*each : (i+1)*each] {
		list[k/l.numbers/joined*l.numbers+k%l.numbers] += int(v)
	}
	return list
}

// Counts returns a Kind that gives layers the whole numbers of each microbatch from the file. size
// is the sequences of a microbatch of the settings. set gives a layer its counts by microbatch.
// change is the kind of the change at a step of the file. detail returns the name and the value of
// the change's detail, from the loads of the step and their sum.
func (l Loads) Counts(size int, change string, set func(l *model.Layer, counts []int), detail func(values []float64, sum float64) (string, float64)) Kind {
	return forcedCounts{loads: l, size: size, change: change, set: set, detail: detail}
}

type forcedCounts struct {
	Unmeasured
	loads  Loads
	size   int
	change string
	set    func(l *model.Layer, counts []int)
	detail func(values []float64, sum float64) (string, float64)
}

// Before sets the counts of this stage's layers.
func (f forcedCounts) Before(step int, t Target) (Change, error) {
	for _, l := range t.Stage.Layers {
		f.set(l, f.loads.of(step, l.ID, t.Exec.B/f.size))
	}
	values, due := f.loads.At(step)
	if !due {
		return Change{}, nil
	}
	sum := 0.0
	for _, x := range values {
		sum += x
	}
	name, value := f.detail(values, sum)
	return Change{Kind: f.change, Costs: true, Detail: map[string]float64{name: value}}, nil
}

// Check calls wanted for every load, values[i:] that begin with its numbers. before is the first
// number in the step of the file before, of the same layer and microbatch, or -1. It returns an error
// for the first load for which wanted is not "".
func (l Loads) Check(wanted func(before float64, values []float64, i int) string) error {
	for k, s := range l.steps {
		for record, line := range s.lines {
			i, before := record*l.numbers, -1.0
			if k > 0 {
				before = l.steps[k-1].values[i]
			}
			if text := wanted(before, s.values, i); text != "" {
				var shown any = s.values[i]
				if l.numbers > 1 {
					shown = s.values[i : i+l.numbers]
				}
				return fmt.Errorf("dynamic.replay: %s:%d: %s: %v, want %s", l.path, line, l.field, shown, text)
			}
		}
	}
	return nil
}

// Open is New for a run. Where the settings name a file of loads (dynamic.replay) it returns
// kinds that follow the file instead. The error names the file, the line, the field, its value
// and what is wanted.
func Open(c config.Config) (Kind, error) {
	path, active := c.Dynamic.Replay, Active(c)
	if path == "" {
		return New(c), nil
	}
	fail := func(line int, format string, args ...any) error {
		return fmt.Errorf("dynamic.replay: %s:%d: %w", path, line, fmt.Errorf(format, args...))
	}
	var loads []Loads
	for _, r := range active {
		f := r.Forcing
		if f.New == nil {
			return nil, fmt.Errorf("dynamic.replay: %s: the load of dynamic.kind = %q cannot be forced, want %s", path, r.Settings.Name, forcedKinds())
		}
		l := Loads{Microbatches: 1, path: path, field: f.Field, numbers: 1}
		for id, d := range model.FromConfig(c).Chain() {
			if f.Has(d) {
				l.Layers = append(l.Layers, id)
			}
		}
		if f.Numbers != nil {
			l.numbers = f.Numbers(c)
		}
		if f.ByMicrobatch {
			l.Microbatches = c.Parallel.Microbatches * c.Parallel.Replicas
		}
		loads = append(loads, l)
	}
	text, err := files.Read(path, files.Replay)
	if err != nil {
		return nil, fmt.Errorf("dynamic.replay: %w", err)
	}
	line := 0
	for row := range bytes.Lines(text) {
		line++
		record, err := files.Value{JSON: bytes.TrimSpace(row)}.Object()
		if err != nil {
			return nil, fail(line, "%w", err)
		}
		i := slices.IndexFunc(active, func(r Registration) bool { _, ok := record[r.Forcing.Field]; return ok })
		if i < 0 {
			return nil, fail(line, "no load of dynamic.kind = %q, want one of %s", c.Dynamic.Kind, fieldsOf(active))
		}
		if err := loads[i].read(c, active[i].Forcing, record, line); err != nil {
			return nil, fail(line, "%w", err)
		}
	}
	var list several
	for i, r := range active {
		l := loads[i]
		if n := len(l.steps); n == 0 {
			return nil, fail(line, "the end of the file without a record with %s, the load of dynamic.kind = %q", r.Forcing.Field, r.Settings.Name)
		} else if last := l.steps[n-1]; len(last.lines) < len(l.Layers)*l.Microbatches {
			layer, microbatch := l.place(len(last.lines))
			return nil, fail(line, "the end of the file, want %s of step %d, layer %d, microbatch %d: a step has a record for each of %d layers and %d microbatches",
				r.Forcing.Field, last.step, layer, microbatch, len(l.Layers), l.Microbatches)
		}
		kind, err := r.Forcing.New(c, l)
		if err != nil {
			return nil, err
		}
		list = append(list, kind)
	}
	return list, nil
}

// place returns the layer and the microbatch of load i of a step.
func (l *Loads) place(i int) (layer, microbatch int) {
	return l.Layers[i/l.Microbatches], i % l.Microbatches
}

// read adds a record. The records of a step are in the order of layers, then of microbatches.
func (l *Loads) read(c config.Config, f Forcing, record files.Object, line int) error {
	keys := map[string]*int{"step": new(int), "layer": new(int)}
	if f.ByMicrobatch {
		keys["microbatch"] = new(int)
	}
	for key, v := range record {
		if to, ok := keys[key]; ok {
			n, err := v.Integer()
			if err != nil {
				return fmt.Errorf("%s: %.100s, want an integer of at least 0", key, v)
			}
			*to = int(n)
			continue
		}
		if key != f.Field {
			return fmt.Errorf("%.100q: an unknown field beside %s, want %s", key, f.Field, strings.Join(wantedKeys(f), ", "))
		}
	}
	for _, key := range wantedKeys(f) {
		if _, ok := record[key]; !ok {
			return fmt.Errorf("no %s, want %s", key, strings.Join(wantedKeys(f), ", "))
		}
	}
	step, layer, microbatch := *keys["step"], *keys["layer"], 0
	if f.ByMicrobatch {
		microbatch = *keys["microbatch"]
	}
	values, err := f.load(c, record[f.Field])
	if err != nil {
		return err
	}
	if !slices.Contains(l.Layers, layer) {
		return fmt.Errorf("layer: %d, want one of %v: the %d of %d layers that have a %s", layer, l.Layers, len(l.Layers), c.Layers(), f.Field)
	}
	if microbatch >= l.Microbatches {
		return fmt.Errorf("microbatch: %d, want below %d, those of all replicas", microbatch, l.Microbatches)
	}
	n := len(l.steps)
	if n == 0 || len(l.steps[n-1].lines) == len(l.Layers)*l.Microbatches {
		if n > 0 && step <= l.steps[n-1].step {
			return fmt.Errorf("step: %d, want above %d: steps ascend, and step %d has all its records", step, l.steps[n-1].step, l.steps[n-1].step)
		}
		l.steps = append(l.steps, loadedStep{step: step})
		n++
	}
	at := &l.steps[n-1]
	wantLayer, wantMicrobatch := l.place(len(at.lines))
	for _, k := range []struct {
		name      string
		got, want int
	}{{"step", step, at.step}, {"layer", layer, wantLayer}, {"microbatch", microbatch, wantMicrobatch}} {
		if k.got != k.want {
			return fmt.Errorf("%s: %d, want %d: a step has a record for each of %d layers and %d microbatches, ascending", k.name, k.got, k.want, len(l.Layers), l.Microbatches)
		}
	}
	at.values, at.lines = append(at.values, values...), append(at.lines, line)
	return nil
}

// load reads the numbers of a load.
func (f Forcing) load(c config.Config, v files.Value) ([]float64, error) {
	list, most, wanted := make([]float64, 1), 1.0, "a number from 0 to 1"
	if f.Most != nil {
		most, wanted = float64(f.Most(c)), fmt.Sprintf("an integer from 0 to %d", f.Most(c))
	}
	var err error
	if f.Numbers == nil {
		err = json.Unmarshal(v.JSON, &list[0])
	} else {
		err = json.Unmarshal(v.JSON, &list)
		wanted = fmt.Sprintf("a list of %d times %s", f.Numbers(c), wanted)
	}
	wrong := func(x float64) bool { return !(x >= 0 && x <= most) || f.Most != nil && x != float64(int(x)) }
	if err != nil || f.Numbers != nil && len(list) != f.Numbers(c) || slices.ContainsFunc(list, wrong) {
		return nil, fmt.Errorf("%s: %.100s, want %s", f.Field, v, wanted)
	}
	return list, nil
}

// wantedKeys returns the fields of a record.
func wantedKeys(f Forcing) []string {
	if f.ByMicrobatch {
		return []string{"step", "layer", "microbatch", f.Field}
	}
	return []string{"step", "layer", f.Field}
}

// fieldsOf returns the names of the loads of kinds.
func fieldsOf(kinds []Registration) string {
	var list []string
	for _, r := range kinds {
		list = append(list, r.Forcing.Field)
	}
	return strings.Join(list, ", ")
}

// forcedKinds returns the kinds whose loads can be forced.
func forcedKinds() string {
	var list []string
	for _, r := range registrations {
		if r.Forcing.New != nil {
			list = append(list, r.Settings.Name)
		}
	}
	return strings.Join(list, ", ")
}

// ErrReplayed is why a model of a run with forced loads is not exported.
var ErrReplayed = errors.New("a model of a replayed run (dynamic.replay): its loads were forced, so that it has learned nothing that means anything")
