package dynamic

import (
	"fmt"
	"math"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/model"
)

func init() { register("prune", func(c config.Config) Kind { return NewPrune(c.Prune) }) }

// Prune is gradual global magnitude pruning (Zhu & Gupta 2017; paper,
// algorithm 2): at chosen steps the smallest magnitudes of all blocks'
// matrices together are dropped. The kept set only shrinks.
type Prune struct {
	unmeasured
	Start, Every, Times int     // t0, Δt, n
	Initial, Final      float64 // S_i, S_f
	Gather              bool    // select on rank 0 from gathered magnitudes; else by radix histograms
	CSRFrom             float64 // sparsity from which a matrix is stored as CSR
}

// NewPrune returns the pruning of the settings.
func NewPrune(c config.Prune) Prune {
	return Prune{
		Start: c.Start, Every: c.Every, Times: c.Times, Initial: c.Initial, Final: c.Final,
		Gather: c.Select == "gather", CSRFrom: c.CSRFrom,
	}
}

// Sparsity returns the target at a step, and whether pruning happens there:
//
//	S_t = S_f + (S_i - S_f)·(1 - (t-t0)/(n·Δt))³  at t = t0, t0+Δt, …, t0+n·Δt
func (p Prune) Sparsity(step int) (float64, bool) {
	since := step - p.Start
	if since < 0 || since%p.Every != 0 || since > p.Times*p.Every {
		return 0, false
	}
	left := 1 - float64(since)/float64(p.Times*p.Every)
	return p.Final + (p.Initial-p.Final)*left*left*left, true
}

// Before prunes to the step's sparsity: k = (1 - S_t)·(all prunable parameters)
// are kept, fewer only where fewer are left. Ties are broken by (layer,
// parameter, index), the lower stays.
func (p Prune) Before(step int, t Target) (Change, error) {
	sparsity, due := p.Sparsity(step)
	if !due {
		return Change{}, nil
	}
	counts := countPrunable(t.Stage)
	if err := comm.Allreduce(t.Stages, counts[:], func(a, b int64) int64 { return a + b }); err != nil {
		return Change{}, fmt.Errorf("prune: count: %w", err)
	}
	total, left := counts[0], counts[1]
	k := int64(math.Round((1 - sparsity) * float64(total)))
	fewer := k < left
	if fewer {
		choose := radix
		if p.Gather {
			choose = gather
		}
		kept, err := choose(t.Stages, t.Exec, t.Stage, k)
		if err != nil {
			return Change{}, fmt.Errorf("prune: %w", err)
		}
		for i, l := range t.Stage.Layers {
			if len(kept[i]) == 0 {
				continue // embedding, head
			}
			if err := l.Compress(kept[i], p.CSRFrom); err != nil {
				return Change{}, fmt.Errorf("prune: %w", err)
			}
		}
	}
	return Change{Kind: "prune", Structure: fewer, Costs: fewer, Detail: map[string]float64{
		"target_sparsity": sparsity, "kept": float64(min(k, left)), "prunable": float64(total),
		"sparsity": 1 - float64(min(k, left))/float64(total),
	}}, nil
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
