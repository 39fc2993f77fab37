package mod

import (
	"fmt"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// forcing has a routed block take as many tokens of each microbatch as a file says.
var forcing = dynamic.Forcing{
	Field: "taken", Most: config.Config.TokensOfMicrobatch, ByMicrobatch: true,
	Has: func(d model.Description) bool { return d.Form == Routed },
	New: func(c config.Config, l dynamic.Loads) (dynamic.Kind, error) {
		if m := config.Of[options](c); m.Route != "predictor" {
			return nil, fmt.Errorf(`dynamic.replay: mod.route = %q: want "predictor", by which the number of tokens may vary`, m.Route)
		}
		all := float64(c.TokensOfMicrobatch())
		return l.Counts(c.Parallel.MicrobatchSize, forcedChange,
			func(l *model.Layer, counts []int) {
				for _, p := range l.Parts {
					if r, ok := p.(*routed); ok {
						r.forced = counts
					}
				}
			},
			func(values []float64, sum float64) (string, float64) {
				return "taken", sum / all / float64(len(values))
			},
		), nil
	},
}

// forcedChange is the kind of a change to forced loads.
const forcedChange = "mod.replay"

// tellForced says how many tokens routed blocks take.
func tellForced(of map[string]float64) string {
	return "routed blocks take " + dynamic.Percent(of["taken"]) + " of the tokens"
}

// force replaces the tokens that the predictor takes by as many as are forced, evenly spread
// over the tokens that are there. A forward that is repeated takes the same ones.
func (r *routed) force(x *model.Exec, b *model.Batch, in *inner, d decision) error {
	if r.forced == nil {
		return nil
	}
	n := b.Tokens
	if !x.Repeats {
		count := r.forced[x.Microbatch]
		if count > n {
			return fmt.Errorf("dynamic.replay: a routed block is to take %d tokens of microbatch %d, want at most the %d that come", count, x.Microbatch, n)
		}
		in.forced, in.taken[0] = in.forced[:0], float64(count)
		for i := range n {
			in.forced = append(in.forced, int32((i+1)*count/n-i*count/n))
		}
	}
	x.Stream.Copy(d.taken, tensor.From(in.forced))
	x.Stream.Copy(d.readings.Span(8, 8), tensor.From(in.taken[:]))
	return nil
}
