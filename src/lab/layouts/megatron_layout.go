package layouts

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// shapeSeconds is what a message takes longer if it exchanges the shape of its tensor first: two small
// messages and a synchronisation of the GPU. It is assumed, not measured.
const shapeSeconds = 100e-6

var megatron = Trainer{
	Name:      "megatron",
	Half:      true,
	constrain: constrainMegatron,
	parse: func(text string, c Chain, p Problem) (partition.Partition, error) {
		if isHybrid(text) {
			return parseHybrid(text, c, p)
		}
		if isCounts(text) {
			counts, err := numbers(text)
			if err != nil {
				return nil, err
			}
			return blockCuts(counts, c, p)
		}
		virtual, err := ParseMegatron(text)
		if err != nil {
			return nil, err
		}
		if n := p.Stages * p.Chunks; len(virtual) != n {
			return nil, fmt.Errorf("%d virtual stages, want %d", len(virtual), n)
		}
		if err := CheckMegatron(virtual, p.Stages, c.blocks, c.mtps); err != nil {
			return nil, err
		}
		return cutsOfSymbols(virtual, c), nil
	},
	chunks: func(text string, stages int) (int, error) {
		if isHybrid(text) {
			return chunksOf(1+strings.Count(text, "|"), stages)
		}
		if isCounts(text) {
			return chunksOfCounts(text, stages)
		}
		virtual, err := ParseMegatron(text)
		if err != nil {
			return 0, err
		}
		return chunksOf(len(virtual), stages)
	},
	brief: func(cuts partition.Partition, c Chain) string {
		if cutsBlocks(cuts, c) {
			return halfCounts(cuts, c)
		}
		return shortMegatron(symbolsOf(cuts, c))
	},
	format: formatMegatron,
	Change: `Megatron-LM: with --use-distributed-optimizer a run goes on with another layout only from a checkpoint
that was saved with --dist-ckpt-optim-fully-reshardable. The default format of the optimizer (dp_reshardable)
keeps the layout. Save one checkpoint with that option, then start again with the new layout.`,
}

// constrainMegatron sets Megatron-LM's rules. Embedding and head stay on the first and the last virtual
// stage, and each is one place. Layers of multi-token prediction are in one virtual stage, of the last
// chunk. Other virtual stages may be empty.
func constrainMegatron(p *Problem, c Chain, half bool) error {
	for l, x := range c.parts {
		if x.role == mtp && x.number > 0 {
			p.CanCut[l] = false
		}
	}
	if p.Chunks > 1 {
		if p.Schedule != schedule.KindInterleaved {
			return fmt.Errorf("megatron: schedule %s with %d chunks, want interleaved", p.Schedule, p.Chunks)
		}
		if p.Stages == 1 {
			return errors.New("megatron: chunks on 1 stage, want --chunks 1 or several stages")
		}
		if p.Microbatches%p.Stages != 0 {
			return fmt.Errorf("megatron: %d microbatches, want a multiple of the %d stages with chunks", p.Microbatches, p.Stages)
		}
	} else if p.Schedule != schedule.Kind1F1B {
		return fmt.Errorf("megatron: schedule %s, want 1f1b", p.Schedule)
	}
	p.Empty = true
	first := slices.IndexFunc(c.parts, func(x part) bool { return x.role == mtp })
	if first < 0 {
		return nil
	}
	if half {
		return errors.New("megatron: with halves of blocks (--hybrid-layer-pattern) layers of multi-token prediction stay with the head, want costs in which they are part of it")
	}
	p.Legal = func(cuts partition.Partition) error {
		if v := cuts.Stage(first); v < (p.Chunks-1)*p.Stages {
			return fmt.Errorf("m is in virtual stage %d, want it in the last chunk of a stage", v)
		}
		return nil
	}
	p.Slower = func(cuts partition.Partition) float64 {
		if cuts.Stage(first)%p.Stages != p.Stages-1 {
			return shapeSeconds
		}
		return 0
	}
	return nil
}

// symbolsOf returns the symbols of every virtual stage. A symbol stands for a layer of the chain that
// begins a block or another place.
func symbolsOf(cuts partition.Partition, c Chain) []string {
	virtual := make([]string, cuts.Stages())
	for v := range virtual {
		lo, hi := cuts.Range(v)
		for _, x := range c.parts[lo:hi] {
			if x.first {
				virtual[v] += string(x.role)
			}
		}
	}
	return virtual
}

// cutsOfSymbols returns the cuts of virtual stages that CheckMegatron takes. E and L place nothing: the
// embedding is on the first virtual stage, and the head on the last.
func cutsOfSymbols(virtual []string, c Chain) partition.Partition {
	var begins []int // by symbol between E and L: its first layer
	for l, x := range c.parts {
		if x.first && (x.role == block || x.role == mtp) {
			begins = append(begins, l)
		}
	}
	begins = append(begins, c.head)
	cuts, seen := partition.Partition{0}, 0
	for _, stage := range virtual[:len(virtual)-1] {
		seen += strings.Count(stage, string(block)) + strings.Count(stage, string(mtp))
		cuts = append(cuts, begins[seen])
	}
	return append(cuts, len(c.Layers))
}

// formatMegatron writes the option of Megatron-LM. What it writes passes Megatron-LM's parser and checks.
func formatMegatron(cuts partition.Partition, c Chain, p Problem) (string, error) {
	if cutsBlocks(cuts, c) {
		pattern, err := hybridPattern(cuts, c)
		return fmt.Sprintf("--hybrid-layer-pattern %q\n%s", pattern, hybridNote), err
	}
	virtual := symbolsOf(cuts, c)
	text := shortMegatron(virtual)
	if err := CheckMegatron(virtual, p.Stages, c.blocks, c.mtps); err != nil {
		return "", fmt.Errorf("%s: %w", text, err)
	}
	out := fmt.Sprintf("--pipeline-model-parallel-layout %q\nLeave out the other options of the layout: --num-layers-per-virtual-pipeline-stage,\n--num-virtual-stages-per-pipeline-rank, --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers,\n--account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split.", text)
	if c.mtps > 0 {
		out += "\nThe vocabulary product of multi-token prediction is on the stage of L, wherever m is."
	}
	if p.Slower != nil && p.Slower(cuts) > 0 {
		out += fmt.Sprintf("\nm is not on the stage of L: every message exchanges its shape first, assumed %.0f us.", 1e6*shapeSeconds)
	}
	return out, nil
}
