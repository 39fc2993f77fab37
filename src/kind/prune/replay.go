package prune

import (
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/dynamic"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// forcing has each layer keep its share of largest weights, from a file.
var forcing = dynamic.Forcing{
	Field: "density",
	Has:   func(d model.Description) bool { return slices.ContainsFunc(d.Params(), (*model.Param).Prunable) },
	New: func(c config.Config, l dynamic.Loads) (dynamic.Kind, error) {
		halves := config.Of[options](c).Structure == "2:4"
		return forced{pruning: newPruning(c), loads: l}, l.Check(func(before float64, values []float64, i int) string {
			switch {
			case before >= 0 && values[i] > before:
				return fmt.Sprintf("at most %v, the density of the layer in the step before: pruned weights do not come back", before)
			case halves && values[i] < 0.5:
				return `at least 0.5 beside prune.structure = "2:4"`
			}
			return ""
		})
	},
}

// forced prunes at the steps of a file. Each layer keeps the share of its prunable weights that
// the file has as its density, the largest of the layer. Global pruning compares weights of
// all layers instead.
type forced struct {
	pruning
	loads dynamic.Loads
}

// Before prunes the layers of this stage to the densities of the step, if the file has the step. It
// changes nothing where no more are left.
// Ties are broken by (parameter, index), the lower stays.
func (f forced) Before(step int, t dynamic.Target) (dynamic.Change, error) {
	densities, due := f.loads.At(step)
	if !due {
		return dynamic.Change{}, nil
	}
	before := countPrunable(t.Stage)
	if err := f.dropEach(t, densities); err != nil {
		return dynamic.Change{}, fmt.Errorf("prune: %w", err)
	}
	after := countPrunable(t.Stage)
	sums := []int64{before[0], before[1], after[1]}
	if err := comm.Allreduce(t.Stages, sums, func(a, b int64) int64 { return a + b }); err != nil {
		return dynamic.Change{}, fmt.Errorf("prune: count: %w", err)
	}
	kept, prunable := float64(sums[2]), float64(sums[0])
	if sums[2] == sums[1] {
		return dynamic.Change{}, nil
	}
	return dynamic.Change{Kind: "prune", Structure: true, Costs: true, Detail: map[string]float64{
		"kept": kept, "prunable": prunable, "sparsity": 1 - kept/prunable,
	}}, nil
}

// dropEach leaves each layer's largest units. Collective over the replicas where these share
// masters out.
func (f forced) dropEach(t dynamic.Target, densities []float64) error {
	if err := t.Settle(); err != nil {
		return err
	}
	by, x := f.structure(), t.Exec
	list, err := matrices(x, t.Stage, by)
	if err != nil {
		return err
	}
	defer release(x, list)
	scores, places, _, err := candidates(x, t.Stage, list)
	if err != nil {
		return err
	}
	masks, counts := make([]model.Mask, len(list)), make([]int, len(list))
	all := make([]int64, len(t.Stage.Layers)) // prunable elements, by layer
	for i, m := range list {
		masks[i] = make(model.Mask, (m.units+63)/64)
		all[m.layer] += int64(m.Rows * m.Cols)
	}
	for i, l := range t.Stage.Layers {
		at := slices.Index(f.loads.Layers, l.ID)
		if at < 0 {
			continue
		}
		k := min(by.whole(1-densities[at], all[i]), int64(len(scores[i])))
		for _, place := range largest(scores[i:i+1], k)[0] {
			p := places[i][place]
			masks[p.matrix].Set(p.unit)
			counts[p.matrix]++
		}
	}
	return compress(x, t.Stage, by, list, choice{counts, func(i int, bits tensor.Mem) error {
		return device.Write(x.Device, bits, mirrored(bits, masks[i]))
	}}, f.CSRFrom)
}
