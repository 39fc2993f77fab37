package search

import (
	"slices"
	"strings"

	"dynmo/src/balance"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/kernel"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/schedule"
)

// recomputeKey begins what Shape says of what is computed twice.
const recomputeKey = " model.recompute="

// repeatedShares returns the share of every layer's forward that runs a second time. Of the
// attention of a whole block it is estimated: that of the multiplications of a token.
func repeatedShares(c config.Config) []float64 {
	chain, dense := model.FromConfig(c).Chain(), Dense(c).Layers
	shares := make([]float64, len(chain))
	for l, d := range chain {
		switch {
		case dense[l].Bytes.Recomputed == 0:
		case c.Model.Recompute == "attention" && d.Kind == model.Block:
			shares[l] = AttentionForward(c)
		default:
			shares[l] = 1
		}
	}
	return shares
}

// AttentionForward returns the share, 0 to 1, of a block's forward multiplications that its attention
// makes. C is the number of channels and T that of tokens in a sequence. For a token, GPT-2's attention
// makes 4·C² in matrices, and T·C in the causal half of scores and sums. Its block makes 12·C² + T·C.
func AttentionForward(c config.Config) float64 {
	hidden, sequence := float64(c.Model.Hidden), float64(c.Model.Sequence)
	attention, mlp := c.Matrices()
	return (attention/hidden + sequence) / ((attention+mlp)/hidden + sequence)
}

// Suit converts costs that were measured with other settings to costs for settings c. shape is the
// Shape of the other settings; "" if it is not known. The two settings may differ in model.recompute,
// in optimizer.shard, and in settings of kinds of dynamism that change only memory. If optimizer.shard
// is true they may differ in parallel.replicas too. Suit returns the converted costs and the Shape of c. If the
// settings differ in more, Suit returns its arguments.
//
// A layer that recomputes gets the seconds of its second forward added to its backward for inputs;
// those of a block's attention are estimated (AttentionForward). Bytes of activations are converted if
// they are the bytes of the unpruned layer, else they stay. Bytes of masters and moments are converted
// if they are those of a whole layer or of a replica's slice; other numbers stay.
func Suit(t cost.Table, shape string, c config.Config) (cost.Table, string) {
	before := had(c, shape)
	others := Dense(before).Layers // that differ in memory alone
	before.Model.Recompute, before.Optimizer.Shard = "none", false
	if _, rest, is := strings.Cut(shape, recomputeKey); is {
		before.Model.Recompute, _, _ = strings.Cut(rest, " ")
	}
	if len(t.Layers) != c.Layers() || shape != "" && shape != Shape(before) {
		return t, shape
	}
	dense, now := Dense(before).Layers, Dense(c).Layers
	was, is := repeatedShares(before), repeatedShares(c)
	t.Layers = slices.Clone(t.Layers)
	for l := range t.Layers {
		layer, b, n := &t.Layers[l], dense[l].Bytes, now[l].Bytes
		if layer.BackwardInput > 0 {
			layer.BackwardInput = max(0, layer.BackwardInput+(is[l]-was[l])*layer.Forward)
		}
		bytes, other := &layer.Bytes, others[l].Bytes
		if bytes.Activations == b.Activations && bytes.Recomputed == b.Recomputed {
			bytes.Activations, bytes.Recomputed = n.Activations, n.Recomputed
		}
		bytes.Optimizer = suitOptimizer(*bytes, b, c) + n.Optimizer - other.Optimizer
		bytes.Parameters += n.Parameters - other.Parameters
		bytes.Gradients += n.Gradients - other.Gradients
		bytes.Own += n.Own - other.Own
	}
	if shape != "" {
		shape = Shape(c)
	}
	return t, shape
}

// suitOptimizer returns the bytes of masters and moments that a replica has of a layer with
// settings c. b is what the costs say, of all gradients or of a slice of those that replicas
// share; anything else stays as it is. dense is the layer's memory before it was pruned, with
// all masters and moments.
func suitOptimizer(b, dense cost.Bytes, c config.Config) int64 {
	slabs, wide := int64(2), Precision(c).Wide() // moments, and masters where weights are rounded
	if wide != Precision(c) {
		slabs++
	}
	borrowed := dense.Gradients - dense.Optimizer/slabs
	shared := b.Summed() - borrowed
	is := b.Optimizer/slabs - b.Own
	if isSlice := is > 0 && is < shared && is%(kernel.SquareBlock*wide.Size()) == 0; is != shared && !isSlice {
		return b.Optimizer
	}
	if c.Sharded() {
		shared = int64(model.LargestSlice(int(shared/wide.Size()), c.Parallel.Replicas)) * wide.Size()
	}
	return slabs * (shared + b.Own)
}

// secondForward returns what a second forward of a layer takes. A layer without a backward for
// inputs, frozen behind nothing that trains, has none.
func secondForward(l cost.Layer) float64 {
	if l.BackwardInput == 0 && l.BackwardWeight == 0 {
		return 0
	}
	return l.Forward
}

// effective returns the costs if the chosen layers compute their forward twice, and no others.
func (p *Problem) effective(t cost.Table, chosen []bool) cost.Table {
	if chosen == nil {
		return t
	}
	t.Layers = slices.Clone(t.Layers)
	for l, again := range chosen {
		if layer := &t.Layers[l]; again && p.twice[l].Recomputed > 0 {
			layer.BackwardInput += secondForward(*layer)
			layer.Bytes.Activations, layer.Bytes.Recomputed = p.twice[l].Activations, p.twice[l].Recomputed
		}
	}
	return t
}

// chosen returns which layers recompute their forward in a layout: those of l.Twice or, without, those
// that the costs choose in a schedule with these peaks. On every stage these are the layers that take
// the least seconds and save the bytes that the memory limit demands (see balance.Least). gap is the
// share by which the seconds of the choice on any stage may be above the least; 0 of an exact one.
// chosen is nil if nothing is planned. No layer of s.Costs recomputes.
func (s *Step) chosen(l layout.Layout, peaks func() []schedule.Peak) (chosen []bool, gap float64) {
	if s.twice == nil || l.Twice == nil && s.limit == 0 {
		return nil, 0
	}
	chosen = make([]bool, len(s.twice))
	if l.Twice != nil {
		for _, layer := range l.Twice {
			chosen[layer] = true
		}
		return chosen, 0
	}
	at, layers := peaks(), s.Costs.Layers
	for stage, m := range s.memoryOf(s.Costs, l.Cuts, at) {
		need := m.Total() - s.limit
		if need <= 0 {
			continue
		}
		var numbers []int
		var savings []balance.Saving
		for chunk := range l.Map().Chunks {
			v := l.Map().Place(stage, chunk)
			lo, hi := l.Cuts.Range(v)
			for n := lo; n < hi; n++ {
				saved := int64(at[v].InFlight)*(layers[n].Bytes.Activations-s.twice[n].Activations) - int64(at[v].Recomputed)*s.twice[n].Recomputed
				numbers, savings = append(numbers, n), append(savings, balance.Saving{Bytes: saved, Seconds: secondForward(layers[n])})
			}
		}
		least := balance.Least(savings, need)
		for i, again := range least.Chosen {
			chosen[numbers[i]] = again
		}
		if least.Bound > 0 {
			gap = max(gap, least.Seconds/least.Bound-1)
		}
	}
	return chosen, gap
}

// complete returns a layout with the choice of layers that compute their forward twice.
func (s *Step) complete(l layout.Layout) layout.Layout {
	chosen, _ := s.chosen(l, l.Schedule.Peaks)
	for layer, again := range chosen {
		if again {
			l.Twice = append(l.Twice, layer)
		}
	}
	return l
}
