package exit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/model"
)

// forcing has as many tokens leave behind an exit, of each microbatch, as a file says.
var forcing = dynamic.Forcing{
	Field: "left", Most: config.Config.TokensOfMicrobatch, ByMicrobatch: true,
	Has: func(d model.Description) bool { return d.Kind == model.Exit },
	New: func(c config.Config, l dynamic.Loads) (dynamic.Kind, error) {
		if e := config.Of[options](c); e.Train == "weighted" || e.Stage2 > 0 {
			return nil, fmt.Errorf(`dynamic.replay: exit.train = %q, exit.stage2 = %d: want "leave" and 0, by which tokens leave in training`, e.Train, e.Stage2)
		}
		all := float64(c.TokensOfMicrobatch())
		forced := l.Counts(c.Parallel.MicrobatchSize, forcedChange,
			func(l *model.Layer, counts []int) {
				for _, p := range l.Parts {
					if e, ok := p.(*exit); ok {
						e.forced = counts
					}
				}
			},
			func(_ []float64, sum float64) (string, float64) { return "left", sum / all / float64(l.Microbatches) },
		)
		return forced, l.Check(func(_ float64, values []float64, i int) string {
			rest := all
			for j := i % l.Microbatches; j < i; j += l.Microbatches {
				rest -= values[j]
			}
			if values[i] > rest {
				return fmt.Sprintf("at most %v, the tokens of the microbatch that have not left before", rest)
			}
			return ""
		})
	},
}

// forcedChange is the kind of a change to forced loads.
const forcedChange = "exit.replay"

// tellForced says how many tokens leave.
func tellForced(of map[string]float64) string {
	return dynamic.Percent(of["left"]) + " of the tokens leave before the last block"
}

// force makes confidences of a microbatch by which as many tokens leave as are forced to: those
// with the largest confidences, of equal ones the earlier.
func (e *exit) force(x *model.Exec, d *departure) error {
	if e.forced == nil {
		return nil
	}
	count, confidence := e.forced[x.Microbatch], d.confidence[:d.came]
	if count > d.came {
		return fmt.Errorf("dynamic.replay: %d tokens of microbatch %d are to leave, want at most the %d that come", count, x.Microbatch, d.came)
	}
	order := make([]int, d.came)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(cmp.Compare(confidence[j], confidence[i]), cmp.Compare(i, j)) })
	for k, i := range order {
		confidence[i] = math.Inf(1)
		if k >= count {
			confidence[i] = math.Inf(-1)
		}
	}
	return nil
}
