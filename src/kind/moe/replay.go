package moe

import (
	"fmt"
	"slices"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// forcing has the experts of a block take as many tokens of each microbatch as a file says.
var forcing = dynamic.Forcing{
	Field: "tokens", Most: config.Config.TokensOfMicrobatch, ByMicrobatch: true,
	Numbers: func(c config.Config) int { return config.Of[options](c).Experts },
	Has:     func(d model.Description) bool { return routerOf(model.MakeParts(d.Makers)) != nil },
	New: func(c config.Config, l dynamic.Loads) (dynamic.Kind, error) {
		m := config.Of[options](c)
		if m.Capacity > 0 {
			return nil, fmt.Errorf("dynamic.replay: moe.capacity = %v: want 0, by which no assignment is dropped", m.Capacity)
		}
		all := c.TokensOfMicrobatch() * m.Top
		forced := l.Counts(c.Parallel.MicrobatchSize, forcedChange,
			func(l *model.Layer, counts []int) {
				if e := routerOf(l.Parts); e != nil {
					e.forced = counts
				}
			},
			func(values []float64, sum float64) (string, float64) {
				return "fullest", slices.Max(values) * float64(len(values)) / sum
			},
		)
		return forced, l.Check(func(_ float64, values []float64, i int) string {
			sum := 0.0
			for _, x := range values[i : i+m.Experts] {
				sum += x
			}
			if sum != float64(all) {
				return fmt.Sprintf("numbers that add up to %d, moe.top = %d for each token of a microbatch", all, m.Top)
			}
			return ""
		})
	},
}

// routerOf returns the part that routes tokens; nil if there is none.
func routerOf(parts []model.Part) *experts {
	for _, p := range parts {
		switch p := p.(type) {
		case *experts:
			return p
		case *expertGroup:
			if p.first() {
				return &p.experts
			}
		}
	}
	return nil
}

// forcedChange is the kind of a change to forced loads.
const forcedChange = "moe.replay"

// tellForced says how unequal the loads are.
func tellForced(of map[string]float64) string {
	return "in a microbatch the fullest expert takes " + dynamic.Significant(of["fullest"]) + " times the mean"
}

// force replaces the experts of n tokens so that each takes as many as it is forced to, a token
// to different experts. The weights of the choices stay those that the router gave. A forward
// that is repeated makes the same choices.
func (e *experts) force(x *model.Exec, n int, d *dispatch, s expertsSaved) error {
	if e.forced == nil {
		return nil
	}
	if !x.Repeats {
		counts := e.forced[x.Microbatch*e.Count:][:e.Count]
		d.forced, d.given = slices.Grow(d.forced[:0], n*e.Top)[:n*e.Top], d.given[:0]
		at := 0 // assignments in the order of experts go to tokens 0, 1, …, n-1, 0, …
		for expert, count := range counts {
			d.given = append(d.given, float64(count))
			for ; count > 0 && at < len(d.forced); at, count = at+1, count-1 {
				d.forced[at%n*e.Top+at/n] = int32(expert)
			}
			if count > 0 {
				return fmt.Errorf("dynamic.replay: experts are to take more than the %d assignments of the %d tokens of microbatch %d that come", n*e.Top, n, x.Microbatch)
			}
		}
		if at < len(d.forced) {
			return fmt.Errorf("dynamic.replay: experts are to take %d assignments of microbatch %d, want all %d of the %d tokens that come", at, x.Microbatch, n*e.Top, n)
		}
	}
	x.Stream.Copy(s.chosen, tensor.From(d.forced))
	x.Stream.Copy(s.decided.readings.Span(countsFrom*8, int64(e.Count)*8), tensor.From(d.given))
	return nil
}
