package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/dynamic"
	"dynmo/src/model"
	"dynmo/src/record"
)

// changed is the effect of the kinds of dynamism on the model, as means over steps.
type changed struct {
	Sparsity record.Float // share of prunable weights that are pruned
	Frozen   int          // number of frozen layers, from the first on, in the last of the steps
	Layers   int          // of the chain
	What     string       // "tokens" or "scores" if blocks work on only a part of them; "" if they work on all
	Work     float64      // mean share of the work over the blocks
	Tokens   float64      // tokens of the steps
	Counts   []dynamic.Values
}

// changer computes the effect of the kinds of dynamism on a run's model.
type changer struct {
	run    Run
	frozen []frozen
	work   *work
	chain  []model.Description
	names  []string // of the chain
	counts []dynamic.Counts
}

func (r Run) changer() changer {
	return changer{r, r.frozen(), r.work(), model.FromConfig(r.Config).Chain(), r.chain(), dynamic.AllCounts(r.Config)}
}

// change returns the state of the model in the metrics [s.lo, s.hi), at least one.
func (c changer) change(s segment) changed {
	d := changed{Layers: len(c.chain), Work: math.NaN(), Sparsity: c.run.Metrics[s.hi-1].Sparsity}
	for _, f := range c.frozen {
		if f.lo < s.hi && s.hi <= f.hi {
			d.Frozen = f.layers
		}
	}
	sum, n := 0.0, 0
	for i := s.lo; i < s.hi; i++ {
		m := c.run.Metrics[i]
		d.Counts = append(d.Counts, values(c.counts, m, c.names)...)
		d.Tokens += float64(m.BatchSize * c.run.Config.Model.Sequence)
		if c.work == nil || c.work.shares[i] == nil {
			continue
		}
		if share := c.work.blocks(c.chain, i); !math.IsNaN(share) {
			sum, n = sum+share, n+1
		}
	}
	if n > 0 {
		d.What, d.Work = c.work.What, sum/float64(n)
	}
	return d
}

// values returns the counts of the layers of a chain in a step.
func values(counts []dynamic.Counts, m record.Metrics, names []string) (list []dynamic.Values) {
	for _, c := range m.Counts {
		if of, known := dynamic.Find(counts, c.Name); known && slices.Contains(names, c.Layer) {
			list = append(list, of.Read(c.Values))
		}
	}
	return list
}

// recently is the number of last steps that describe the final model.
const recently = 16

// end returns the state of the model in the last steps without a change.
func (c changer) end() changed {
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
	d := c.end()
	seen := dynamic.Seen{
		Config: c.run.Config, Sparsity: float64(d.Sparsity), Frozen: d.Frozen, Layers: d.Layers, Froze: c.frozenText(d), Scores: math.NaN(),
		Tokens: d.Tokens, Counts: d.Counts,
	}
	if d.What == "scores" {
		seen.Scores = d.Work
	}
	var list []string
	for _, kind := range dynamic.Active(c.run.Config) {
		if kind.Sentence == nil {
			continue
		}
		if s := kind.Sentence(seen); s != "" {
			list = append(list, s)
		}
	}
	if d.What == "tokens" {
		list = append(list, "blocks work on "+dynamic.Percent(d.Work)+" of all tokens")
	}
	return strings.Join(list, "; ")
}

// frozenText returns the number of layers that are frozen now, or the largest number during the
// run.
func (c changer) frozenText(d changed) string {
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
