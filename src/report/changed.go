package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/kind/exit"
	"dynmo/src/kind/mod"
	"dynmo/src/model"
	"dynmo/src/record"
)

// changed is what the kinds of dynamism have made of the model, as means over steps.
type changed struct {
	Sparsity float64 // share of the prunable weights that are gone
	Frozen   int     // layers, from the first on, in the last of the steps
	Layers   int     // of the chain
	What     string  // "tokens" or "scores", of which blocks work on a part; "" if they do all
	Work     float64 // mean of that part over the blocks
	Left     float64 // share of the tokens that leave at exits; NaN without any
	Taken    float64 // share of those that come to routed blocks and are taken; NaN without any
	Loads    loads   // of experts
}

// changer tells what the model has become.
type changer struct {
	run    Run
	frozen []frozen
	work   *work
	chain  []model.Description
	names  []string // of the chain
}

func (r Run) changer() changer {
	return changer{r, r.frozen(), r.work(), model.FromConfig(r.Config).Chain(), r.chain()}
}

// over returns what the model was in metrics [s.lo, s.hi), at least one.
func (c changer) over(s segment) changed {
	d := changed{Layers: len(c.chain), Work: math.NaN()}
	for _, f := range c.frozen {
		if f.lo < s.hi && s.hi <= f.hi {
			d.Frozen = f.layers
		}
	}
	entered, left, there, taken := 0.0, 0.0, 0.0, 0.0
	sum, n := 0.0, 0
	for i := s.lo; i < s.hi; i++ {
		m := c.run.Metrics[i]
		d.Sparsity += float64(m.Sparsity) / float64(s.hi-s.lo)
		for _, counts := range m.Counts {
			switch {
			case len(counts.Values) < 2 || !slices.Contains(c.names, counts.Layer):
			case counts.Name == exit.Counts:
				left += float64(counts.Values[1])
			case counts.Name == mod.Counts:
				there, taken = there+float64(counts.Values[0]), taken+float64(counts.Values[1])
			}
		}
		entered += float64(m.BatchSize * c.run.Config.Model.Sequence)
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
	if d.Left = math.NaN(); c.run.Config.Dynamic.Has("exit") {
		d.Left = left / entered
	}
	d.Taken, d.Loads = taken/there, meanLoads(c.run.Metrics[s.lo:s.hi]...)
	return d
}

// recently is how many steps tell what a model is at the end.
const recently = 16

// end returns what the model was in the last steps without a change.
func (c changer) end() changed {
	last := len(c.run.Metrics)
	lo := max(0, last-recently)
	for _, e := range c.run.Events {
		if at := c.run.index(e.Step); e.Kind == record.Dynamic && at < last {
			lo = max(lo, at)
		}
	}
	return c.over(segment{lo, last})
}

// sentence says what the kinds that the run names have made of its model, "" if it names
// none that tells.
func (c changer) sentence() string {
	d, kinds := c.end(), c.run.Config.Dynamic
	var list []string
	if kinds.Has("prune") {
		list = append(list, percentOf(d.Sparsity)+" of the prunable weights are gone")
	}
	if kinds.Has("freeze") {
		list = append(list, c.frozenText(d))
	}
	if kinds.Has("attention") && d.What == "scores" {
		list = append(list, percentOf(d.Work)+" of the causal scores of attention are computed")
	}
	if !math.IsNaN(d.Left) {
		list = append(list, percentOf(d.Left)+" of the tokens leave early")
	}
	if !math.IsNaN(d.Taken) {
		list = append(list, "routed blocks take "+percentOf(d.Taken)+" of their tokens")
	}
	if !math.IsNaN(d.Loads.Fullest) {
		list = append(list, d.Loads.sentence())
	}
	if d.What == "tokens" {
		list = append(list, "blocks work on "+percentOf(d.Work)+" of all tokens")
	}
	return strings.Join(list, "; ")
}

// frozenText says how many layers are frozen, or were most.
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

// percentOf writes a share in per cent.
func percentOf(share float64) string { return record.Significant(100*share) + " %" }
