package layouts

import (
	"fmt"

	"dynmo/src/partition"
)

var nanotron = Trainer{
	Name: "nanotron",
	constrain: func(p *Problem, c Chain, _ bool) error {
		if c.mtps > 0 {
			return fmt.Errorf("nanotron has no layers of multi-token prediction, and the costs have %d", c.mtps)
		}
		p.Candidates = []partition.Partition{}
		nanotronSearch(c, p.Stages, func(_ nanotronCost, cuts partition.Partition) bool {
			p.Candidates = append(p.Candidates, cuts)
			return true
		})
		return onlyOneChunk("nanotron", p)
	},
	parse: func(text string, c Chain, p Problem) (partition.Partition, error) {
		counts, err := numbers(text)
		if err != nil {
			return nil, err
		}
		return blockCuts(counts, c, p)
	},
	chunks: oneChunk,
	brief:  counts,
	format: func(cuts partition.Partition, c Chain, _ Problem) (string, error) {
		var x nanotronCost
		nanotronSearch(c, cuts.Stages(), func(y nanotronCost, made partition.Partition) bool {
			x = y
			return !made.Equal(cuts)
		})
		return fmt.Sprintf(`def get_block_compute_costs(self):
    return {Embedding: %d, LlamaDecoderLayer: %d, TensorParallelColumnLinear: %d}`, x.embedding, nanotronUnit, x.head), nil
	},
	Change: `The costs are for nanotron's Llama; a model of another class has its own name for the decoder layer.

nanotron: checkpoints name weights by the whole model, so these go on with another layout. The optimizer's
state does not: every rank reads the file of its own number. Start with checkpoints.load_optimizer: false.`,
}

// nanotronUnit is the cost of a decoder layer in nanotron's costs. Those of embedding and head are
// multiples of nanotronStep, up to 8 and 20 decoder layers: nearly all cuts that any costs make.
const (
	nanotronUnit = 32
	nanotronStep = 3
)

// nanotronCost are costs of nanotron's blocks.
type nanotronCost struct{ embedding, head int }

// nanotronSearch yields costs that make different cuts, until yield returns false.
func nanotronSearch(c Chain, stages int, yield func(nanotronCost, partition.Partition) bool) {
	seen := make(map[string]bool)
	for e := 0; e < 8*nanotronUnit; e += nanotronStep {
		for head := 0; head < 20*nanotronUnit; head += nanotronStep {
			x := nanotronCost{e, head}
			cuts, ok := nanotronCuts(x, c, stages)
			if key := fmt.Sprint(cuts); ok && !seen[key] {
				seen[key] = true
				if !yield(x, cuts) {
					return
				}
			}
		}
	}
}

// nanotronCuts returns nanotron's own cuts: a rank takes blocks until the cumulative cost is above its
// share of all. It reports false where a rank would get nothing, and where rounding decides. Source:
// nanotron 2411b022, models/base.py, build_model.
func nanotronCuts(x nanotronCost, c Chain, stages int) (partition.Partition, bool) {
	total := x.embedding + c.blocks*nanotronUnit + x.head
	cuts, sum := partition.Partition{0}, 0
	for l, part := range c.parts {
		switch {
		case !part.first:
			continue
		case part.role == embedding:
			sum += x.embedding
		case part.role == loss:
			sum += x.head
		default:
			sum += nanotronUnit
		}
		next := l + 1
		for next < len(c.parts) && !c.parts[next].first {
			next++
		}
		if len(cuts) == stages || next == len(c.parts) {
			continue
		}
		if sum*stages == total*len(cuts) {
			return nil, false
		}
		if sum*stages > total*len(cuts) {
			cuts = append(cuts, next)
		}
	}
	return append(cuts, len(c.parts)), len(cuts) == stages
}
