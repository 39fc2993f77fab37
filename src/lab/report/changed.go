package report

import (
	"fmt"
	"math"
	"strings"

	"dynmo/src/dynamic"
	"dynmo/src/record"
)

// changer computes the effect of the kinds of dynamism on a run's model.
type changer struct {
	run    Run
	frozen []frozen
	work   *work
}

func (r Run) changer() changer { return changer{r, r.frozen(), r.work()} }

// change returns the state of the model in the steps of a segment, at least one, and the mean share of
// the work that blocks do, NaN if they work on all.
func (c changer) change(s segment) (dynamic.Seen, float64) {
	seen := c.work.seen(c.run.Metrics[s.lo:s.hi])
	for _, f := range c.frozen {
		if f.lo < s.hi && s.hi <= f.hi {
			seen.Frozen = f.layers
		}
	}
	var shares []float64
	for i := s.lo; i < s.hi && c.work.shares != nil; i++ {
		shares = append(shares, c.work.blocks(c.work.shares[i]))
	}
	share := meanKnown(shares)
	if c.work.What == "scores" {
		seen.Scores = share
	}
	return seen, share
}

// recently is the number of last steps that describe the final model.
const recently = 16

// end returns the state of the model in the last steps without a change, as change does.
func (c changer) end() (dynamic.Seen, float64) {
	phases := c.run.phases()
	last := phases[len(phases)-1]
	return c.change(segment{max(last.lo, last.hi-recently), last.hi})
}

// sentence describes the effect of the run's kinds of dynamism on its model. It returns "" if no
// kind of the run reports an effect.
func (c changer) sentence() string {
	if c.run.simulated() {
		return ""
	}
	seen, share := c.end()
	seen.Froze = c.frozenText(seen)
	var list []string
	for _, kind := range dynamic.Active(c.run.Config) {
		if kind.Sentence == nil {
			continue
		}
		if s := kind.Sentence(seen); s != "" {
			list = append(list, s)
		}
	}
	if c.work.What == "tokens" && !math.IsNaN(share) {
		list = append(list, "blocks work on "+dynamic.Percent(share)+" of all tokens")
	}
	return strings.Join(list, "; ")
}

// frozenText returns the number of layers that are frozen now, or the largest number during the
// run.
func (c changer) frozenText(d dynamic.Seen) string {
	if d.Frozen > 0 {
		return fmt.Sprintf("%d of %d layers are frozen", d.Frozen, d.Layers)
	}
	var most frozen
	for _, f := range c.frozen {
		if f.layers > most.layers && f.hi > f.lo {
			most = f
		}
	}
	if most.layers == 0 {
		return "no layer froze"
	}
	return fmt.Sprintf("no layer is frozen any more, at most %d of %d were (%s)", most.layers, d.Layers, c.run.steps(segment{most.lo, most.hi}))
}

// frozen says that the first `layers` layers of the chain were frozen in the metrics [lo, hi).
type frozen struct{ lo, hi, layers int }

// frozen returns when layers were frozen, from the run's changes of the model.
func (r Run) frozen() (list []frozen) {
	for _, e := range r.Events {
		layers, ok := frozenBy(e)
		if !ok {
			continue
		}
		at := r.index(e.Step)
		if n := len(list); n > 0 {
			list[n-1].hi = min(list[n-1].hi, at)
		}
		if layers > 0 {
			list = append(list, frozen{at, len(r.Metrics), layers})
		}
	}
	return list
}

// frozenChart returns a chart of the number of frozen layers, nil if no layer was ever frozen.
func (r Run) frozenChart(list []frozen) *chart {
	if len(list) == 0 {
		return nil
	}
	n := curve{Name: "frozen", Style: "line", Held: true, Y: make([]record.Float, len(r.Metrics))}
	for _, f := range list {
		for i := f.lo; i < f.hi; i++ {
			n.Y[i] = record.Float(f.layers)
		}
	}
	return r.chart("frozen layers", "layers", "from the first on, of the chain", n)
}
