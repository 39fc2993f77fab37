package layouts

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/cost"
	"dynmo/src/partition"
	"dynmo/src/random"
)

// Answer is the best layouts of a model, beside the present one.
type Answer struct {
	Trainer  string   `json:"trainer"`
	Clock    string   `json:"clock"` // of the steps: they are simulated
	Costs    string   `json:"costs"` // where the seconds of layers come from
	Stages   int      `json:"stages"`
	Chunks   int      `json:"chunks"`
	Schedule string   `json:"schedule"`
	Present  *Named   `json:"present"` // null if it is not known
	Best     []Named  `json:"best"`
	Proven   bool     `json:"proven"`
	Bound    float64  `json:"bound"`
	Gain     *float64 `json:"gain"`  // seconds of the present step, divided by those of the best
	Noise    *float64 `json:"noise"` // standard error of the gain, from that of the costs
	Better   bool     `json:"better"`
	Text     string   `json:"text"`   // what the user gives to the trainer for the best layout
	Change   string   `json:"change"` // how a run goes on with it

	timelines []timeline // the present and the best step
}

// Named is a layout with its short notation.
type Named struct {
	Text string `json:"text"`
	Layout
}

// sigmas is the number of standard errors by which a gain must be above 1 to count.
const sigmas = 2

// Plan searches layouts of a chain for a trainer. table has the costs. present is the user's layout in
// the trainer's notation; "" if it is not known. half allows cuts inside blocks. p has the settings; the
// trainer's rules are added to them.
func Plan(t Trainer, table cost.Table, p Problem, present string, half bool) (Answer, error) {
	c, err := NewChain(table.Layers)
	if err != nil {
		return Answer{}, err
	}
	if err := t.rules(&p, c, half); err != nil {
		return Answer{}, err
	}
	p.Deviation = table.Deviation
	p.keepTogether(table.Unseparated)
	a := Answer{
		Trainer: t.Name, Clock: "sim", Costs: table.Source(), Stages: p.Stages, Chunks: p.Chunks,
		Schedule: string(p.Schedule), Change: t.Change,
	}
	var now partition.Partition
	if present != "" {
		if now, err = t.read(present, c, p); err != nil {
			return a, err
		}
	}
	found, err := findBest(budget, p, now)
	if err != nil {
		return a, err
	}
	a.Proven, a.Bound = found.Proven, found.Bound
	for _, l := range found.Best {
		a.Best = append(a.Best, Named{t.brief(l.Cuts, c), l})
	}
	best := found.Best[0]
	if a.Text, err = t.format(best.Cuts, c, p); err != nil {
		return a, err
	}
	v, err := newSolver(p)
	if err != nil {
		return a, err
	}
	longest := best.Seconds
	a.Better = true
	if now != nil {
		units, ok := v.unitsOf(now)
		if !ok {
			return a, fmt.Errorf("layout %.200q cuts where the search may not", present)
		}
		l := v.describe(units)
		a.Present = &Named{t.brief(now, c), l}
		gain, noise := l.Seconds/best.Seconds, v.noise(now, best.Cuts)
		a.Gain, a.Noise = &gain, &noise
		a.Better = gain-1 > max(sigmas*noise, 1e-6)
		longest = max(longest, l.Seconds)
		a.timelines = append(a.timelines, v.draw("present", a.Present.Text, units, longest))
	}
	units, _ := v.unitsOf(best.Cuts)
	a.timelines = append(a.timelines, v.draw("best", a.Best[0].Text, units, longest))
	return a, nil
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

// noise returns the standard error of the gain from layout a to layout b, from the deviations of the
// costs. Layers of one kind have one error.
func (v *solver) noise(a, b partition.Partition) float64 {
	if v.Deviation == nil {
		return 0
	}
	const draws = 100
	list := make([]float64, draws)
	drawn := *v
	before, _ := v.unitsOf(a)
	after, _ := v.unitsOf(b)
	for d := range list {
		rnd := random.Keyed(searchKey, uint64(d))
		factor := make(map[string]float64)
		layers := slices.Clone(v.Layers)
		for l, layer := range layers {
			kind := Kind(layer.Name)
			if _, ok := factor[kind]; !ok {
				factor[kind] = max(0.1, 1+v.Deviation[l]*rnd.NormFloat64())
			}
			layers[l] = layer.WithSeconds(layer.Stage().Scale(factor[kind]))
		}
		drawn.sum(layers)
		list[d] = drawn.evaluate(before) / drawn.evaluate(after)
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
