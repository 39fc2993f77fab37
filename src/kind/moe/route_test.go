package moe

import (
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/random"
	"dynmo/src/tensor"
	"math"
	"slices"
	"testing"
)

// assignment is where tokens go, as RouteTokens and PlaceTokens of package kernel leave it.
type assignment struct {
	chosen, places, ends []int32
	weights, readings    []float64
}

// of returns how many assignments an expert has, of how many.
func (r *assignment) of(expert int) (count, all int) {
	return int(r.ends[expert+1] - r.ends[expert]), int(r.ends[len(r.ends)-1])
}

// route returns where experts e have tokens go of such logits, a row for each token.
func route(e Experts, logits ...[]float64) *assignment { return routeIn(nil, e, logits...) }

// routeIn is route of tokens of a text; nil: of a microbatch.
func routeIn(text *model.Text, e Experts, logits ...[]float64) *assignment {
	n := len(logits)
	x := &model.Exec{Text: text, Backend: ref.New(tensor.F64), Stream: cpu.New(device.NewWall()).NewStream()}
	doubles := func(n int) tensor.Mem { return tensor.From(make([]float64, n)) }
	indices := func(n int) tensor.Mem { return tensor.From(make([]int32, n)) }
	s := expertsSaved{logits: tensor.From(slices.Concat(logits...)), chosen: indices(n * e.Top), router: doubles(2 * n * e.Count)}
	s.decided = assignments{
		tokens: indices(n * e.Top), factors: doubles(n * e.Top), places: indices(n * e.Top), weights: doubles(n * e.Top),
		ends: indices(e.Count + 1), readings: doubles(countsFrom + e.Count),
	}
	of := &experts{divided: divided{e, 0}}
	of.routeTokens(x, n, s)
	of.placeTokens(x, n, s)
	return &assignment{
		tensor.Of[int32](s.chosen), tensor.Of[int32](s.decided.places), tensor.Of[int32](s.decided.ends),
		tensor.Of[float64](s.decided.weights), tensor.Of[float64](s.decided.readings),
	}
}

// TestRouteOfExperts: tokens go to the experts of the largest logits, of equal ones the
// first; weights are renormalised; assignments are sorted by expert, then token.
func TestRouteOfExperts(t *testing.T) {
	log := math.Log
	const dropped = -1 // the expert, and the place, of an assignment beyond the capacity
	for name, c := range map[string]struct {
		Experts
		logits         [][]float64
		chosen, places []int32
		ends           []int32
		weights        []float64
	}{
		"top 2 of 3": {Experts{Count: 3, Top: 2}, [][]float64{{log(3), log(2), log(1)}, {log(1), log(1), log(8)}},
			[]int32{0, 1, 2, 0}, []int32{0, 2, 3, 1}, []int32{0, 2, 3, 4}, []float64{3. / 5, 2. / 5, 8. / 9, 1. / 9}},
		"ties, and an expert without tokens": {Experts{Count: 3, Top: 1}, [][]float64{{5, 5, 5}, {0, 1, 1}},
			[]int32{0, 1}, []int32{0, 1}, []int32{0, 1, 2, 2}, []float64{1, 1}},
		"all of 2": {Experts{Count: 2, Top: 2}, [][]float64{{0, log(3)}},
			[]int32{1, 0}, []int32{1, 0}, []int32{0, 1, 2}, []float64{3. / 4, 1. / 4}},
		"one expert": {Experts{Count: 1, Top: 1}, [][]float64{{-40}, {700}}, []int32{0, 0}, []int32{0, 1}, []int32{0, 2}, []float64{1, 1}},
		"far apart":  {Experts{Count: 2, Top: 2}, [][]float64{{-2000, 2000}}, []int32{1, 0}, []int32{1, 0}, []int32{0, 1, 2}, []float64{1, 0}},
		"capacity 1": {Experts{Count: 2, Top: 1, Capacity: 1}, [][]float64{{2, 1}, {2, 1}, {2, 1}, {1, 2}},
			[]int32{0, 0, dropped, 1}, []int32{0, 1, dropped, 2}, []int32{0, 2, 3}, []float64{1, 1, 0, 1}},
		"first choices before second": {Experts{Count: 2, Top: 2, Capacity: 0.5}, [][]float64{{1, 2}, {2, 1}},
			[]int32{1, dropped, 0, dropped}, []int32{1, dropped, 0, dropped}, []int32{0, 1, 2}, nil},
		"capacity rounded up": {Experts{Count: 3, Top: 1, Capacity: 0.01}, [][]float64{{1, 0, 0}, {1, 0, 0}},
			[]int32{0, dropped}, []int32{0, dropped}, []int32{0, 1, 1, 1}, []float64{1, 0}},
		"least capacity": {Experts{Count: 2, Top: 1, Capacity: 1e-12}, [][]float64{{1, 0}, {1, 0}},
			[]int32{0, dropped}, []int32{0, dropped}, []int32{0, 1, 1}, []float64{1, 0}},
		"s-base takes p": {Experts{Count: 2, Top: 1, Balanced: true, Deviation: 8, Rounds: 16}, [][]float64{{log(3), 0}, {0, log(3)}},
			[]int32{0, 1}, []int32{0, 1}, []int32{0, 1, 2}, []float64{3. / 4, 3. / 4}},
		"s-base evens out": {Experts{Count: 2, Top: 1, Balanced: true, Deviation: 8, Rounds: 16}, [][]float64{{log(9), 0}, {log(3), 0}},
			[]int32{0, 1}, []int32{0, 1}, []int32{0, 1, 2}, []float64{9. / 10, 1. / 4}},
		"no token": {Experts{Count: 2, Top: 1, Balanced: true, Deviation: 8, Rounds: 16}, nil, nil, nil, []int32{0, 0, 0}, nil},
	} {
		d := route(c.Experts, c.logits...)
		if !slices.Equal(d.chosen, c.chosen) || !slices.Equal(d.places, c.places) || !slices.Equal(d.ends, c.ends) {
			t.Errorf("%s: chosen %v places %v ends %v, want %v %v %v", name, d.chosen, d.places, d.ends, c.chosen, c.places, c.ends)
		}
		for i, w := range c.weights {
			if math.Abs(d.weights[i]-w) > 1e-12 {
				t.Errorf("%s: weights %v, want %v", name, d.weights, c.weights)
				break
			}
		}
	}
}

// TestRouteOfAText: a token goes to the experts that are most probable for it, whatever the
// others; balanced assignments keep the weights that they were trained with, p itself.
func TestRouteOfAText(t *testing.T) {
	for _, c := range []struct {
		Experts
		weights []float64
	}{
		{Experts{Count: 2, Top: 1, Balanced: true, Deviation: 8, Rounds: 16}, []float64{9. / 10, 3. / 4}},
		{Experts{Count: 2, Top: 1, Capacity: 0.5}, []float64{1, 1}},
	} {
		d := routeIn(&model.Text{}, c.Texts().(Experts), []float64{math.Log(9), 0}, []float64{math.Log(3), 0})
		if !slices.Equal(d.chosen, []int32{0, 0}) {
			t.Errorf("%+v: chosen %v, want the first of both", c.Experts, d.chosen)
		}
		for i, w := range c.weights {
			if math.Abs(d.weights[i]-w) > 1e-12 {
				t.Errorf("%+v: weights %v, want %v", c.Experts, d.weights, c.weights)
			}
		}
	}
}

// TestRouteOfNaN: logits that are no numbers end no run here; every token still has
// different experts.
func TestRouteOfNaN(t *testing.T) {
	nan := math.NaN()
	for _, balanced := range []bool{false, true} {
		d := route(Experts{Count: 3, Top: 2, Balanced: balanced, Deviation: 8, Rounds: 16}, []float64{nan, nan, nan}, []float64{1, nan, math.Inf(1)}, []float64{math.Inf(-1), math.Inf(-1), 0})
		for token := range 3 {
			if pair := d.chosen[2*token:][:2]; pair[0] == pair[1] || min(pair[0], pair[1]) < 0 {
				t.Errorf("token %d goes to %v", token, pair)
			}
		}
	}
}

// TestBalancedAssignment: a router prefers some experts to others by up to e^4. Balanced loads are
// still nearly equal, and each token gets the same experts every time. Without the balance loads
// are not equal.
func TestBalancedAssignment(t *testing.T) {
	for _, e := range []Experts{{Count: 8, Top: 2, Balanced: true, Deviation: 8, Rounds: 16}, {Count: 16, Top: 4, Balanced: true, Deviation: 8, Rounds: 16}, {Count: 16, Top: 1, Balanced: true, Deviation: 8, Rounds: 16}} {
		draw := random.Keyed(5)
		logits := make([][]float64, 2048)
		for i := range logits {
			for k := range e.Count {
				logits[i] = append(logits[i], draw.NormFloat64()+4*float64(k)/float64(e.Count))
			}
		}
		fullest := func(d *assignment) float64 {
			most, all := 0, 0
			for k := range e.Count {
				var count int
				count, all = d.of(k)
				most = max(most, count)
			}
			return float64(most*e.Count) / float64(all)
		}
		d, again := route(e, logits...), route(e, logits...)
		if !slices.Equal(d.chosen, again.chosen) {
			t.Errorf("%+v: another assignment of the same logits", e)
		}
		if got := fullest(d); got > 1.3 {
			t.Errorf("%+v: the fullest expert has %.2f times the mean", e, got)
		} else {
			t.Logf("%+v: %.3f", e, got)
		}
		e.Balanced = false
		if got := fullest(route(e, logits...)); got < 1.5 {
			t.Errorf("%+v: the fullest expert has %.2f times the mean, want an uneven load", e, got)
		}
	}
}

// TestRouterLosses: equal loads of equal probabilities have the loss 1, all tokens at one
// expert the number of experts.
func TestRouterLosses(t *testing.T) {
	e := Experts{Count: 4, Top: 1, Auxiliary: 1, Z: 1}
	d := route(e, []float64{9, 0, 0, 0}, []float64{0, 9, 0, 0}, []float64{0, 0, 9, 0}, []float64{0, 0, 0, 9})
	if got := d.readings[2] / 4000; math.Abs(got-1) > 1e-12 {
		t.Errorf("equal loads: %v", got)
	}
	d = route(e, []float64{60, 0, 0, 0}, []float64{60, 0, 0, 0})
	if math.Abs(d.readings[2]/2000-4) > 1e-12 || math.Abs(d.readings[3]/2000-3600) > 1e-9 {
		t.Errorf("one expert: %v", d.readings)
	}
}

// TestCoefficient: two blocks route alike. The loss of transformers' load_balancing_loss_func
// (modeling_mixtral.py, 00d4b3d, lines 479 to 556) times the coefficient is then the sum of the
// blocks' own losses times Auxiliary. Where they do not route alike it is not.
func TestCoefficient(t *testing.T) {
	e := Experts{Count: 3, Top: 2, Auxiliary: 0.02}
	theirs := func(blocks ...[][]float64) (loss float64) {
		tokens, counts, means := 0.0, make([]float64, e.Count), make([]float64, e.Count)
		for _, logits := range blocks {
			for _, row := range logits {
				sum := 0.0
				for _, z := range row {
					sum += math.Exp(z)
				}
				for k, z := range row {
					means[k] += math.Exp(z) / sum
					if z > slices.Min(row) { // two of three are chosen
						counts[k]++
					}
				}
				tokens++
			}
		}
		for k := range counts {
			loss += float64(e.Count) * counts[k] / tokens * means[k] / tokens
		}
		return loss
	}
	one, other := [][]float64{{2, 1, 0}, {2, 0, 1}, {3, -1, 0.5}}, [][]float64{{0, 1, 2}, {0, 2, 1}, {-1, 0.5, 3}}
	own := func(logits [][]float64) float64 { return route(e, logits...).readings[2] / 1000 / float64(len(logits)) }
	if got, want := e.coefficient(2)*theirs(one, one), e.Auxiliary*2*own(one); math.Abs(got-want) > 1e-12 {
		t.Errorf("blocks that route alike: %v, want %v", got, want)
	}
	if got, want := e.coefficient(2)*theirs(one, other), e.Auxiliary*(own(one)+own(other)); math.Abs(got-want) < 1e-3 {
		t.Errorf("blocks that do not: %v and %v, want a difference", got, want)
	}
}
