package layouts

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/schedule"
)

// Answer is the best layouts of a model, beside the present one.
type Answer struct {
	Trainer string   `json:"trainer"`
	Clock   string   `json:"clock"` // of the steps: they are simulated
	Costs   string   `json:"costs"` // where the seconds of layers come from
	Stages  int      `json:"stages"`
	Present *Named   `json:"present"` // null if it is not known
	Best    []Named  `json:"best"`
	Proven  bool     `json:"proven"`
	Bound   float64  `json:"bound"` // seconds that no layout beats
	Gain    *float64 `json:"gain"`  // seconds of the present step, divided by those of the best
	Noise   *float64 `json:"noise"` // standard error of the gain, from that of the costs; null if that is not known
	Better  bool     `json:"better"`
	Crowded bool     `json:"crowded"`  // whether the present layout is above the limit on memory
	LeftOut []string `json:"left_out"` // numbers of chunks without a layout, and why
	Text    string   `json:"text"`     // what the user gives to the trainer for the best layout
	Change  string   `json:"change"`   // how a run goes on with it

	timelines []timeline // the present and the best step
}

// Named is a layout with its short notation.
type Named struct {
	Text     string        `json:"text"`
	Chunks   int           `json:"chunks"` // virtual stages on each stage
	Schedule schedule.Kind `json:"schedule"`
	Layout
}

// sigmas is the number of standard errors by which a gain must be above 1 to count.
const sigmas = 2

// Request is what a user asks for.
type Request struct {
	Problem
	Trainer Trainer
	Chunks  []int  // numbers of virtual stages on each stage to search; empty: that of the present layout, or 1
	Present string // the user's layout in the trainer's notation; "" if it is not known
	Half    bool   // whether cuts may be inside blocks
}

// Plan searches layouts of a chain for a trainer. table has the costs. The trainer's rules are added to
// those of the request's problem. An empty schedule is 1F1B, or interleaved with several chunks.
func Plan(r Request, table cost.Table) (Answer, error) {
	c, err := NewChain(table.Layers)
	if err != nil {
		return Answer{}, err
	}
	t := r.Trainer
	a := Answer{Trainer: t.Name, Clock: "sim", Costs: table.Source(), Stages: r.Stages, Change: t.Change, Proven: true, Better: true}
	if r.Memory > 0 && !slices.ContainsFunc(table.Layers, func(l cost.Layer) bool { return l.Bytes.Static()+l.Bytes.Activations > 0 }) {
		return a, errors.New("--memory: the costs have no bytes, want those of --csv with parameter_bytes and activation_bytes, --config-json or dynmo profile")
	}
	known := 0 // chunks of the present layout
	if r.Present != "" {
		if known, err = t.chunks(r.Present, r.Stages); err != nil {
			return a, fmt.Errorf("layout %.200q: %w", r.Present, err)
		}
	}
	if len(r.Chunks) == 0 {
		r.Chunks = []int{max(1, known)}
	}
	slices.Sort(r.Chunks)
	r.Chunks = slices.Compact(r.Chunks)
	var best, now *attempt
	var none error // why the first number of chunks has no layout
	for _, chunks := range r.Chunks {
		x, err := r.attempt(c, table, chunks)
		if err != nil {
			return a, err
		}
		var cuts partition.Partition
		if chunks == known {
			now = x
			if cuts, err = t.read(r.Present, c, x.Problem); err != nil {
				return a, err
			}
		}
		if x.found, err = findBest(budget/len(r.Chunks), x.Problem, cuts); err != nil {
			if len(r.Chunks) > 1 {
				err = fmt.Errorf("%d chunks: %w", chunks, err)
			}
			a.LeftOut, none, a.Proven = append(a.LeftOut, err.Error()), cmp.Or(none, err), false
			continue
		}
		if best == nil || compareRounded(x.found.Best[0].Seconds, best.found.Best[0].Seconds) < 0 { // as a.Best is ordered
			best = x
		}
		a.Proven = a.Proven && x.found.Proven
		if a.Bound == 0 || x.found.Bound < a.Bound {
			a.Bound = x.found.Bound
		}
		for _, l := range x.found.Best {
			a.Best = append(a.Best, x.named(t, c, l))
		}
	}
	if best == nil {
		return a, none
	}
	slices.SortStableFunc(a.Best, func(a, b Named) int { return compareRounded(a.Seconds, b.Seconds) })
	a.Best = a.Best[:min(shown, len(a.Best))]
	if a.Text, err = t.format(a.Best[0].Cuts, c, best.Problem); err != nil {
		return a, err
	}
	if r.Present != "" {
		if now == nil {
			if now, err = r.attempt(c, table, known); err != nil {
				return a, err
			}
		}
		if err := a.compare(r, c, now, best); err != nil {
			return a, err
		}
	}
	longest := a.Best[0].Seconds
	if a.Present != nil {
		longest = max(longest, a.Present.Seconds)
		a.timelines = append(a.timelines, now.draw("present", *a.Present, longest))
	}
	a.timelines = append(a.timelines, best.draw("best", a.Best[0], longest))
	return a, nil
}

// attempt is the search of layouts with one number of chunks.
type attempt struct {
	*solver
	found outcome
}

// attempt prepares the search of layouts with a number of chunks.
func (r Request) attempt(c Chain, table cost.Table, chunks int) (*attempt, error) {
	p := r.Problem
	p.Chunks, p.Deviation = chunks, table.Deviation
	if p.Schedule == "" {
		if p.Schedule = schedule.Kind1F1B; chunks > 1 {
			p.Schedule = schedule.KindInterleaved
		}
	}
	if err := r.Trainer.rules(&p, c, r.Half); err != nil {
		return nil, err
	}
	p.keepTogether(table.Unseparated)
	v, err := newSolver(p)
	return &attempt{solver: v}, err
}

// named returns a layout with its notation.
func (x *attempt) named(t Trainer, c Chain, l Layout) Named {
	return Named{t.brief(l.Cuts, c), x.Chunks, x.Schedule, l}
}

// compare sets the present layout, and the gain of the best one over it.
func (a *Answer) compare(r Request, c Chain, now, best *attempt) error {
	cuts, err := r.Trainer.read(r.Present, c, now.Problem)
	if err != nil {
		return err
	}
	units, ok := now.unitsOf(cuts)
	if !ok {
		return fmt.Errorf("layout %.200q cuts inside blocks, want --half", r.Present)
	}
	present := now.named(r.Trainer, c, now.describe(units))
	a.Present = &present
	better, _ := best.unitsOf(a.Best[0].Cuts)
	gain, least := present.Seconds/a.Best[0].Seconds, 1e-6
	a.Gain = &gain
	if now.Deviation != nil {
		noise := noise(now.solver, units, best.solver, better)
		a.Noise, least = &noise, max(least, sigmas*noise)
	}
	a.Crowded = r.Memory > 0 && slices.Max(present.Bytes) > r.Memory
	a.Better = a.Crowded || gain-1 > least
	return nil
}

// keepTogether forbids layouts whose stages' seconds are not known. Each combination of kinds may be
// added to the costs without a change of what was measured, so no virtual stage may have a part of it.
func (p *Problem) keepTogether(unseparated []cost.Combination) {
	if len(unseparated) == 0 {
		return
	}
	legal := p.Legal
	p.Legal = func(cuts partition.Partition) error {
		for _, n := range unseparated {
			for k := range cuts.Stages() {
				lo, hi := cuts.Range(k)
				sum := 0.0
				for _, layer := range p.Layers[lo:hi] {
					sum += n[Kind(layer.Name)]
				}
				if math.Abs(sum) > 1e-6 {
					return fmt.Errorf("the costs do not tell %s apart, and virtual stage %d has other numbers of them than the layout that was measured", n, k)
				}
			}
		}
		if legal != nil {
			return legal(cuts)
		}
		return nil
	}
}

// noise returns the standard error of the gain from cuts a to cuts b, from the deviations of the costs.
// Layers of one kind have one error.
func noise(va *solver, a []int, vb *solver, b []int) float64 {
	const draws = 100
	list := make([]float64, draws)
	before, after := *va, *vb
	for d := range list {
		rnd := random.Keyed(searchKey, uint64(d))
		factor := make(map[string]float64)
		layers := slices.Clone(va.Layers)
		for l, layer := range layers {
			kind := Kind(layer.Name)
			if _, ok := factor[kind]; !ok {
				factor[kind] = max(0.1, 1+va.Deviation[l]*rnd.NormFloat64())
			}
			layers[l] = layer.WithSeconds(layer.Stage().Scale(factor[kind]))
		}
		before.sum(layers)
		after.sum(layers)
		list[d] = before.evaluate(a) / after.evaluate(b)
	}
	return deviation(list)
}

// deviation returns the standard deviation of some numbers.
func deviation(list []float64) float64 {
	mean, squares := 0.0, 0.0
	for _, x := range list {
		mean += x / float64(len(list))
	}
	for _, x := range list {
		squares += (x - mean) * (x - mean) / float64(len(list)-1)
	}
	return math.Sqrt(squares)
}

// counts writes how many blocks each virtual stage has.
func counts(cuts partition.Partition, c Chain) string {
	var list []string
	for k := range cuts.Stages() {
		lo, hi := cuts.Range(k)
		n := 0
		for _, x := range c.parts[lo:hi] {
			if x.role == block && x.first {
				n++
			}
		}
		list = append(list, fmt.Sprint(n))
	}
	return strings.Join(list, ",")
}
