package prune

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/dynamic"
	"dynmo/src/model"
)

// pruning is gradual global magnitude pruning (Zhu & Gupta 2017; paper,
// algorithm 2): at chosen steps the smallest magnitudes of all blocks'
// matrices together are dropped. The kept set only shrinks.
type pruning struct {
	dynamic.Unmeasured
	Start, Every, Times int       // t0, Δt, n
	Initial, Final      float64   // S_i, S_f
	Gather              bool      // select on rank 0 from gathered magnitudes; else by radix histograms
	CSRFrom             float64   // sparsity from which a matrix is stored as CSR
	Structure           structure // what is pruned together; nil: each weight by itself
}

// newPruning returns the pruning of the settings.
func newPruning(c config.Config) pruning {
	p := config.Of[options](c)
	return pruning{
		Start: p.Start, Every: p.Every, Times: p.Times, Initial: p.Initial, Final: p.Final,
		Gather: p.Select == "gather", CSRFrom: csrFrom(c), Structure: structures[p.Structure],
	}
}

// Sparsity returns the target at a step, and whether pruning happens there:
//
//	S_t = S_f + (S_i - S_f)·(1 - (t-t0)/(n·Δt))³  at t = t0, t0+Δt, …, t0+n·Δt
func (p pruning) Sparsity(step int) (float64, bool) {
	since := step - p.Start
	if since < 0 || since%p.Every != 0 || since > p.Times*p.Every {
		return 0, false
	}
	left := 1 - float64(since)/float64(p.Times*p.Every)
	return p.Final + (p.Initial-p.Final)*left*left*left, true
}

// Before prunes to the step's sparsity: (1 - S_t)·(all prunable parameters) are kept,
// rounded to whole units. It changes nothing where no more are left. Ties are broken by (layer,
// parameter, index), the lower stays.
func (p pruning) Before(step int, t dynamic.Target) (dynamic.Change, error) {
	sparsity, due := p.Sparsity(step)
	if !due {
		return dynamic.Change{}, nil
	}
	by, counts := p.structure(), countPrunable(t.Stage)
	if err := comm.Allreduce(t.Stages, counts[:], func(a, b int64) int64 { return a + b }); err != nil {
		return dynamic.Change{}, fmt.Errorf("prune: count: %w", err)
	}
	total, left := counts[0], by.left(counts[0], counts[1])
	k := by.whole(sparsity, total)
	if k >= left {
		return dynamic.Change{}, nil
	}
	if err := p.drop(t, by, k); err != nil {
		return dynamic.Change{}, fmt.Errorf("prune: %w", err)
	}
	kept := float64(by.elements(by.left(total, total), k))
	return dynamic.Change{Kind: "prune", Structure: true, Costs: true, Detail: map[string]float64{
		"target_sparsity": sparsity, "kept": kept, "prunable": float64(total), "sparsity": 1 - kept/float64(total),
	}}, nil
}

// structure returns what is pruned together.
func (p pruning) structure() structure {
	if p.Structure == nil {
		return single{}
	}
	return p.Structure
}

// drop leaves k units whole, those with the largest scores. Collective over the stages.
func (p pruning) drop(t dynamic.Target, by structure, k int64) error {
	if err := t.Settle(); err != nil {
		return err
	}
	list, err := matrices(t.Exec, t.Stage, by)
	if err != nil {
		return err
	}
	defer release(t.Exec, list)
	choose := radix
	if p.Gather {
		choose = gather
	}
	chosen, err := choose(t.Stages, t.Exec, t.Stage, list, k)
	if err != nil {
		return err
	}
	return compress(t.Exec, t.Stage, by, list, chosen, p.CSRFrom)
}

// countPrunable returns the prunable parameters of a stage: as the model
// began, and those that are left.
func countPrunable(s *model.Stage) [2]int64 {
	var n [2]int64
	for _, l := range s.Layers {
		for _, p := range l.Params() {
			if p.Prunable() {
				n[0] += int64(p.Rows * p.Cols)
				n[1] += int64(p.NNZ)
			}
		}
	}
	return n
}
