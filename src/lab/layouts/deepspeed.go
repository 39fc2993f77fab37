package layouts

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"dynmo/src/partition"
)

var deepspeed = Trainer{
	Name: "deepspeed",
	constrain: func(p *Problem, c Chain, _ bool) error {
		for l := range p.CanCut {
			p.CanCut[l] = true // each entry of the list of layers
		}
		return onlyOneChunk("deepspeed", p)
	},
	parse:  parseDeepSpeed,
	chunks: oneChunk,
	brief: func(cuts partition.Partition, _ Chain) string {
		return strings.Trim(strings.Join(strings.Fields(fmt.Sprint([]int(cuts))), ","), "[]")
	},
	format: func(cuts partition.Partition, _ Chain, _ Problem) (string, error) {
		list := strings.Join(strings.Fields(fmt.Sprint([]int(cuts))), ", ")
		return fmt.Sprintf(`# Build the model with this class in place of PipelineModule. Its list has %d layers, as the costs.
class Module(deepspeed.pipe.PipelineModule):
    def _partition_layers(self, method="uniform"):
        stage = self._topo.get_coord(self.global_rank).pipe
        self.parts = %s
        assert len(self._layer_specs) == self.parts[-1]
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])`, cuts.Layers(), list), nil
	},
	Change: `DeepSpeed: checkpoints have one file for each layer of the list, so weights go on with another layout. The
optimizer's state goes on only from a universal checkpoint (ds_to_universal.py), else its files are those
of the stages: start with load_checkpoint(..., load_optimizer_states=False).`,
}

// parseDeepSpeed reads boundaries, or makes those of a method of DeepSpeed's.
func parseDeepSpeed(text string, c Chain, p Problem) (partition.Partition, error) {
	n := len(c.Layers)
	weights := make([]float64, n)
	method := strings.ToLower(text)
	pattern, isType := strings.CutPrefix(method, "type:")
	pattern, _, _ = strings.Cut(pattern, ":") // as DeepSpeed reads it
	switch {
	case method == "uniform":
		return uniformCuts(n, p.Stages), nil
	case method == "parameters":
		for l, layer := range c.Layers {
			weights[l] = float64(layer.Bytes.Parameters)
		}
		if slices.Max(weights) == 0 {
			return nil, errors.New("the costs have no bytes of parameters")
		}
	case isType:
		match, err := regexp.Compile("(?i)" + pattern)
		if err != nil {
			return nil, fmt.Errorf("%q is no regular expression that Go reads", pattern)
		}
		for l, layer := range c.Layers {
			if match.MatchString(layer.Name) {
				weights[l] = 1
			}
		}
		if slices.Max(weights) == 0 {
			return nil, fmt.Errorf("no layer's name matches %q: the costs know no classes, want a name such as %q", pattern, Kind(c.Layers[n/2].Name))
		}
	default:
		cuts, err := numbers(text)
		if err != nil {
			return nil, fmt.Errorf("%w, or uniform, parameters or type:REGEX", err)
		}
		return cuts, partition.Partition(cuts).Check(n, p.Stages, true)
	}
	return balancedCuts(weights, p.Stages), nil
}

// uniformCuts returns DeepSpeed's cuts of method "uniform": the first stages have one layer more.
func uniformCuts(layers, stages int) partition.Partition {
	cuts := make(partition.Partition, stages+1)
	for s := range cuts {
		cuts[s] = s*(layers/stages) + min(s, layers%stages)
	}
	return cuts
}

// balancedCuts returns DeepSpeed's cuts by weights. They have the least difference between the largest and
// the smallest stage, so the largest stage can be larger than it need be. Source: DeepSpeed edaa7221,
// runtime/utils.py, partition_balanced.
func balancedCuts(weights []float64, stages int) partition.Partition {
	n := len(weights)
	if n <= stages {
		return uniformCuts(n, stages)
	}
	type cell struct {
		most, least float64
		begin       int // of the last stage
	}
	sums := make([]float64, n+1)
	for l, w := range weights {
		sums[l+1] = sums[l] + w
	}
	cells := make([][]cell, n+1) // by layers and stages: the best cuts of the first layers over the first stages
	for i := range cells {
		cells[i] = slices.Repeat([]cell{{math.Inf(1), math.Inf(1), 0}}, stages+1)
	}
	cells[0][0].most = 0
	for i := 1; i <= n; i++ {
		for j := 1; j <= min(i, stages); j++ {
			best := math.Inf(1)
			for k := range i {
				last := sums[i] - sums[k]
				c := cell{max(cells[k][j-1].most, last), min(cells[k][j-1].least, last), k}
				if c.most-c.least <= best {
					best, cells[i][j] = c.most-c.least, c
				}
			}
		}
	}
	cuts := make(partition.Partition, stages+1)
	for s, end := stages, n; s > 0; s-- {
		cuts[s] = end
		end = cells[end][s].begin
	}
	return cuts
}
