package layouts

import (
	"fmt"
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
	parse: func(text string, c Chain, p Problem) (partition.Partition, error) {
		cuts, err := numbers(text)
		if err != nil {
			return nil, err
		}
		return cuts, partition.Partition(cuts).Check(len(c.Layers), p.Stages, true)
	},
	brief: func(cuts partition.Partition, _ Chain) string {
		return strings.Trim(strings.Join(strings.Fields(fmt.Sprint([]int(cuts))), ","), "[]")
	},
	format: func(cuts partition.Partition, _ Chain, _ Problem) (string, error) {
		list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint([]int(cuts))), ", "), " ")
		return fmt.Sprintf(`class Module(deepspeed.pipe.PipelineModule):
    def _partition_layers(self, method="uniform"):
        stage = self._topo.get_coord(self.global_rank).pipe
        self.parts = %s
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])`, list), nil
	},
	Change: `DeepSpeed: checkpoints have one file for each layer of the list, so weights go on with another layout.
The optimizer's state does not with ZeRO, except from a universal checkpoint (ds_to_universal.py).`,
}
