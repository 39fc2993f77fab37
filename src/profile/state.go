package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"dynmo/src/files"
	"dynmo/src/layout"
	"dynmo/src/partition"
)

// unmeasured is the value in a checkpoint for an infinite deviation: that of values without a
// measurement. JSON has no infinity.
const unmeasured = -1

// most bounds the numbers of a checkpoint from above, 1/most bounds divisors from below. A file
// with other numbers is damaged.
const most = 1e12

// Save returns the state of the root's profiler.
func (p *Profiler) Save() ([]byte, error) {
	m := p.estimator.memory
	m.Spread[0] = encodeDeviation(m.Spread[0])
	m.Steps = make([]*observed, len(m.Steps))
	for i, s := range p.estimator.Steps {
		o := *s
		o.Within = encodeDeviation(o.Within)
		m.Steps[i] = &o
	}
	return json.Marshal(m)
}

// encodeDeviation returns a deviation in the form that a checkpoint stores.
func encodeDeviation(x float64) float64 {
	if math.IsInf(x, 1) {
		return unmeasured
	}
	return x
}

// Restore sets the state that Save returned before a step of layout l. If it returns an error the
// profiler is unchanged.
func (p *Profiler) Restore(saved []byte, l layout.Layout) error {
	var m memory
	if err := files.CheckKeys(saved, m); err != nil {
		return err
	}
	if err := json.Unmarshal(saved, &m); err != nil {
		return err
	}
	if err := m.check(l.Cuts.Layers(), l.Stages()); err != nil {
		return err
	}
	e := estimator{memory: m}
	e.Spread[0] = decodeDeviation(m.Spread[0])
	e.Steps = nil
	for _, s := range m.Steps {
		s.Within = decodeDeviation(s.Within)
		e.add(s)
	}
	p.estimator = e
	p.known = e.known()
	return nil
}

// decodeDeviation returns a deviation from the form that a checkpoint stores.
func decodeDeviation(x float64) float64 {
	if x == unmeasured {
		return math.Inf(1)
	}
	return x
}

// check returns an error unless m is a valid memory of an estimator with this number of layers and
// stages.
func (m memory) check(layers, stages int) error {
	if n := len(m.Steps); n < 1 || n > window || m.Asked < 0 {
		return fmt.Errorf("%d steps, asked %d times, want 1 to %d steps", n, m.Asked, window)
	}
	for i, s := range m.Steps {
		field := fmt.Sprintf("steps[%d]", i)
		if s == nil {
			return fmt.Errorf("%s is missing", field)
		}
		if n := len(s.Usable); n != stages {
			return fmt.Errorf("%s.usable: %d stages, want %d", field, n, stages)
		}
		for _, err := range []error{
			checkPasses(field+".layers", s.Layers, layers), checkOwners(field+".owners", s.Owners, layers, stages),
			checkDeviation(field+".within", s.Within), checkWork(field+".work", s.Work, layers),
		} {
			if err != nil {
				return err
			}
		}
	}
	for _, err := range []error{
		checkOwners("home", m.Home, layers, stages), checkPasses("base", m.Base, layers),
		checkNumbers("pace", m.Pace, stages, 1/most, most), checkNumbers("last", m.Last, stages, 0, most),
		checkNumbers("passes", m.Passes, stages, 1/most, most), checkNumbers("doubts", m.Doubts, stages, 0, 1),
		checkNumbers("proven", m.Proven, stages, 1/most, most),
		checkDeviation("spread[0]", m.Spread[0]), checkNumbers("spread", m.Spread[1:], 1, 0, most),
		m.Speeds.check(layers, stages), checkLines(m.Lines, layers),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkDeviation(field string, x float64) error {
	if x == unmeasured {
		return nil
	}
	return checkNumbers(field, []float64{x}, 1, 0, most)
}

func checkNumbers(field string, list []float64, n int, low, high float64) error {
	if len(list) != n {
		return fmt.Errorf("%s: %d numbers, want %d", field, len(list), n)
	}
	for _, x := range list {
		if !(x >= low && x <= high) {
			return fmt.Errorf("%s: %v, want a number from %g to %g", field, x, low, high)
		}
	}
	return nil
}

// checkWork returns an error unless the list is absent or has this number of layers. Work exceeds 1
// if one replica of a layer has more than its even share.
func checkWork(field string, list []float64, layers int) error {
	if list == nil {
		return nil
	}
	return checkNumbers(field, list, layers, 0, most)
}

func checkLines(list []line, layers int) error {
	if list != nil && len(list) != layers {
		return fmt.Errorf("lines: %d, want %d", len(list), layers)
	}
	for _, a := range list {
		if err := checkNumbers("lines", []float64{a.N, a.Work, a.Square, a.Seconds, a.Both}, 5, 0, most); err != nil {
			return err
		}
	}
	return nil
}

func checkPasses(field string, list []passes, layers int) error {
	if len(list) != layers {
		return fmt.Errorf("%s: %d layers, want %d", field, len(list), layers)
	}
	for _, p := range list {
		if err := checkNumbers(field, p[:], len(p), 0, most); err != nil {
			return err
		}
	}
	return nil
}

func checkOwners(field string, owners partition.Owners, layers, stages int) error {
	if len(owners) != layers {
		return fmt.Errorf("%s: %d layers, want %d", field, len(owners), layers)
	}
	for l, stage := range owners {
		if stage < 0 || stage >= stages {
			return fmt.Errorf("%s: stage %d of layer %d, want 0 to %d", field, stage, l, stages-1)
		}
	}
	return nil
}

// speeds is the part of a checkpoint that stores rankSpeeds.
type speeds struct {
	Last   []float64        `json:"last,omitempty"`
	Owners partition.Owners `json:"owners,omitempty"`
	Ratios []ratios         `json:"ratios,omitempty"` // ascending
}

// ratios are the logarithms of the seconds of layers on stage To divided by those on stage From.
type ratios struct {
	From int       `json:"from"`
	To   int       `json:"to"`
	Logs []float64 `json:"logs"` // the newest last
}

// Keys returns a value whose fields are the keys that UnmarshalJSON reads.
func (rankSpeeds) Keys() []any { return []any{speeds{}} }

// MarshalJSON writes the observed costs and ratios.
func (s rankSpeeds) MarshalJSON() ([]byte, error) {
	out := speeds{Last: s.last, Owners: s.owners}
	pairs := slices.SortedFunc(maps.Keys(s.samples), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	for _, pair := range pairs {
		out.Ratios = append(out.Ratios, ratios{pair[0], pair[1], s.samples[pair]})
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the output of MarshalJSON.
func (s *rankSpeeds) UnmarshalJSON(text []byte) error {
	var in speeds
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	s.last, s.owners, s.samples = in.Last, in.Owners, make(map[[2]int][]float64)
	for _, r := range in.Ratios {
		s.samples[[2]int{r.From, r.To}] = r.Logs
	}
	return nil
}

// check returns an error unless s is valid for this number of layers and stages.
func (s rankSpeeds) check(layers, stages int) error {
	for pair, logs := range s.samples {
		if from, to := pair[0], pair[1]; from < 0 || from >= to || to >= stages {
			return fmt.Errorf("speeds.ratios: from stage %d to %d of %d", from, to, stages)
		}
		if err := checkNumbers("speeds.ratios", logs, min(len(logs), remembered), -math.Log(most), math.Log(most)); err != nil {
			return err
		}
	}
	if s.owners == nil {
		return nil // the model has changed
	}
	if err := checkNumbers("speeds.last", s.last, layers, 0, most); err != nil {
		return err
	}
	return checkOwners("speeds.owners", s.owners, layers, stages)
}
