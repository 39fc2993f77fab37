package layouts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// torchSchedules are PyTorch's names of schedules.
var torchSchedules = map[schedule.Kind]string{
	schedule.KindGPipe: "GPipe", schedule.Kind1F1B: "1F1B", schedule.KindInterleaved: "Interleaved1F1B",
	schedule.KindZBInterleaved: "InterleavedZeroBubble", schedule.KindZBV: "ZBVZeroBubble",
}

var torchtitan = Trainer{
	Name: "torchtitan",
	constrain: func(p *Problem, c Chain, _ bool) error {
		for kind, name := range torchSchedules {
			if string(p.Schedule) == name {
				p.Schedule = kind
			}
		}
		if torchSchedules[p.Schedule] == "" {
			return fmt.Errorf("torchtitan: schedule %q, want one of %s", p.Schedule, strings.Join(slices.Sorted(maps.Values(torchSchedules)), ", "))
		}
		if c.mtps > 0 {
			return fmt.Errorf("torchtitan has no layers of multi-token prediction, and the costs have %d", c.mtps)
		}
		if rounds := max(1, p.Microbatches/p.Stages); p.Chunks > 1 && p.Schedule != schedule.KindZBV && p.Microbatches%rounds != 0 {
			return fmt.Errorf("torchtitan: PyTorch divides %d microbatches on %d stages with chunks into %d rounds, and wants them equal: %d or %d microbatches",
				p.Microbatches, p.Stages, rounds, p.Microbatches/rounds*rounds, (p.Microbatches/rounds+1)*rounds)
		}
		return nil
	},
	parse: func(text string, c Chain, p Problem) (partition.Partition, error) {
		counts, err := numbers(text)
		if err != nil {
			return nil, err
		}
		return blockCuts(counts, c, p)
	},
	chunks: chunksOfCounts,
	brief:  counts,
	format: func(cuts partition.Partition, c Chain, p Problem) (string, error) {
		var b strings.Builder
		b.WriteString("# The names are those of torchtitan b5bcd76c; modules that no part names are left out of the model.\nParallelismConfig(\n")
		fmt.Fprintf(&b, "    pipeline_parallel_degree=%d,\n    pipeline_parallel_schedule=%q,\n    num_pp_microbatches=%d,\n    module_fqns_per_model_part=[\n",
			p.Stages, torchSchedules[p.Schedule], p.Microbatches)
		for v := range cuts.Stages() {
			lo, hi := cuts.Range(v)
			var names []string
			for _, x := range c.parts[lo:hi] {
				switch {
				case !x.first:
				case x.role == embedding:
					names = append(names, `"tok_embeddings"`)
				case x.role == loss:
					names = append(names, `"norm"`, `"lm_head"`)
				default:
					names = append(names, fmt.Sprintf(`"layers.%d"`, x.number))
				}
			}
			fmt.Fprintf(&b, "        [%s],\n", strings.Join(names, ", "))
		}
		b.WriteString("    ],\n)")
		return b.String(), nil
	},
	Change: `torchtitan: checkpoints name modules by the whole model, so a run goes on with another layout.`,
}
