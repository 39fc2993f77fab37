package exit

import (
	"slices"
	"strings"

	"dynmo/src/cost"
	"dynmo/src/dynamic"
)

// workload lets tokens leave behind blocks (CALM, Schuster et al. 2022), as thresholds make
// them in training (results/exit-shares.txt): a part of them at every quarter of the
// chain, each an equal one, more or less by step and microbatch. Together they are a share
// of the tokens that grows from 0 at the start to Final in the last step.
type workload struct {
	From  float64 // share of the blocks before the first exit
	Final float64 // share of the tokens that have left before the last block by the end
	Noise float64 // relative deviation of an exit's part by step and microbatch
}

// Costs follow the share from change to change; noise is drawn anew in each.
func (w workload) Costs(c *dynamic.Chain, step int) dynamic.Costs {
	progress := w.Final
	if last := c.Steps - 1 - c.Start; last > 0 {
		progress *= float64(step-c.Start) / float64(last)
	}
	exits := Exits{After: options{After: "auto", From: w.From}.Depths(c.Count)}.Depths()
	gone := func(noise func() float64) []float64 {
		list, there := make([]float64, len(c.Layers)), 1.0
		for i, b := range c.Blocks {
			if b.Last && slices.Contains(exits, b.Index+1) {
				list[i] = min(there, max(0, progress/float64(len(exits))*(1+noise())))
				there -= list[i]
			}
		}
		return list
	}
	mean := leave(c.Layers, gone(func() float64 { return 0 }))
	if progress == 0 || w.Noise == 0 || exits == nil {
		return dynamic.Costs{Layers: mean}
	}
	scale := make([][]float64, len(mean))
	rnd := c.Random(stream, uint64(step))
	for range c.Microbatches {
		layers := leave(c.Layers, gone(func() float64 { return w.Noise * rnd.NormFloat64() }))
		for i, l := range mean {
			times := 1.0
			if seconds := l.Seconds(); seconds > 0 {
				times = layers[i].Seconds() / seconds
			}
			scale[i] = append(scale[i], times)
		}
	}
	return dynamic.Costs{Layers: mean, Scale: scale}
}

// leave returns what a chain costs if some tokens leave behind its layers, gone[l] of all
// behind layer l. Later layers compute, keep and send on what is left. The loss of a
// token is computed where it leaves, by as much work as the head takes for it.
func leave(chain []cost.Layer, gone []float64) []cost.Layer {
	layers := slices.Clone(chain)
	head := cost.Layer{}
	for _, l := range layers {
		if strings.HasPrefix(l.Name, "head") {
			head = head.WithSeconds(head.Stage().Plus(l.Stage()))
			head.Bytes.Activations += l.Bytes.Activations
			head.Bytes.Held += l.Bytes.Held
		}
	}
	there := 1.0
	for i := range layers {
		l := &layers[i]
		dynamic.Slower(l, there)
		dynamic.Share(&l.Bytes.Activations, there)
		dynamic.Share(&l.Bytes.Held, there)
		dynamic.Share(&l.Bytes.Recomputed, there)
		if gone[i] > 0 {
			*l = l.WithSeconds(l.Stage().Plus(head.Stage().Scale(gone[i])))
			l.Bytes.Activations += int64(gone[i] * float64(head.Bytes.Activations))
			l.Bytes.Held += int64(gone[i] * float64(head.Bytes.Held))
		}
		there -= gone[i]
		dynamic.Share(&l.Output, there)
	}
	return layers
}

// stream is that of the random numbers.
const stream = 5
