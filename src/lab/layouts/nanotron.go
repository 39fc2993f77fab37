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
	Change: `nanotron: checkpoints name parameters by the whole model, so a run goes on with another layout.`,
}

// nanotronUnit is the cost of a block in nanotron's costs; those of embedding and head are integers
// beside it.
const nanotronUnit = 8

// nanotronCost are costs of nanotron's blocks, in eighths of a decoder layer.
type nanotronCost struct{ embedding, head int }

// nanotronSearch yields costs that make different cuts, until yield returns false.
func nanotronSearch(c Chain, stages int, yield func(nanotronCost, partition.Partition) bool) {
	seen := make(map[string]bool)
	for _, e := range []int{0, 4, 8, 16} {
		for head := range 16 * nanotronUnit {
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
