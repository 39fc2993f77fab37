package layouts

import (
	"fmt"
	"slices"
	"strings"

	"dynmo/src/partition"
)

const hybridNote = `The pattern is for pretrain_hybrid.py; --num-layers follows from it. Megatron-LM's
docs/user-guide/hybrid-model-migration.md says how a checkpoint of pretrain_gpt.py goes on with it.`

// isHybrid reports whether a text is one of Megatron-LM's hybrid patterns: these have no t and no L.
func isHybrid(text string) bool {
	return !strings.ContainsAny(text, "tL") && strings.ContainsAny(text, "*+-M")
}

// cutsBlocks reports whether a virtual stage begins inside a block.
func cutsBlocks(cuts partition.Partition, c Chain) bool {
	return slices.ContainsFunc(cuts[1:len(cuts)-1], func(l int) bool { return l < len(c.parts) && !c.parts[l].first })
}

// hybridPattern writes the value of Megatron-LM's option hybrid-layer-pattern, which can cut blocks in halves.
func hybridPattern(cuts partition.Partition, c Chain) (string, error) {
	var b strings.Builder
	for v := range cuts.Stages() {
		if v > 0 {
			b.WriteByte('|')
		}
		lo, hi := cuts.Range(v)
		for l := lo; l < hi; l++ {
			if c.parts[l].role != block {
				continue
			}
			symbol, err := hybridSymbol(c.Layers[l].Name)
			if err != nil {
				return "", err
			}
			b.WriteByte(symbol)
		}
	}
	return b.String(), nil
}

// parseHybrid reads a hybrid pattern. Its symbols must be those of the chain.
func parseHybrid(text string, c Chain, p Problem) (partition.Partition, error) {
	if n, want := 1+strings.Count(text, "|"), p.Stages*p.Chunks; n != want {
		return nil, fmt.Errorf("%d virtual stages, want %d", n, want)
	}
	first := slices.IndexFunc(c.parts, func(x part) bool { return x.role == block })
	whole, err := hybridPattern(partition.Partition{0, len(c.parts)}, c)
	if err != nil {
		return nil, err
	}
	if got := strings.ReplaceAll(text, "|", ""); got != whole {
		return nil, fmt.Errorf("the layers are %.100q, and those of the costs %.100q", got, whole)
	}
	cuts := partition.Partition{0}
	for stage := range strings.SplitSeq(text, "|") {
		first += len(stage)
		cuts = append(cuts, first)
	}
	cuts[len(cuts)-1] = len(c.parts)
	return cuts, nil
}

// hybridSymbol returns the symbol of half a block in Megatron-LM's hybrid patterns (d98e8a64,
// hybrid_layer_allocation.py).
func hybridSymbol(name string) (byte, error) {
	for _, s := range []struct {
		words  []string
		symbol byte
	}{
		{[]string{"mla"}, '+'}, {[]string{"mamba"}, 'M'}, {[]string{"attention", "attn"}, '*'},
		{[]string{"moe", "experts"}, 'E'}, {[]string{"mlp", "feed", "ffn"}, '-'},
	} {
		for _, word := range s.words {
			if strings.Contains(strings.ToLower(name), word) {
				return s.symbol, nil
			}
		}
	}
	return 0, fmt.Errorf("layer %q: no half of a block by its name, want block.N.attention, .mla, .mamba, .mlp or .moe", name)
}

// halfCounts writes how many blocks each virtual stage has, with halves as .5.
func halfCounts(cuts partition.Partition, c Chain) string {
	layers := 0 // of blocks
	for _, x := range c.parts {
		if x.role == block {
			layers++
		}
	}
	var list []string
	for k := range cuts.Stages() {
		lo, hi := cuts.Range(k)
		n := 0
		for _, x := range c.parts[lo:hi] {
			if x.role == block {
				n++
			}
		}
		list = append(list, fmt.Sprintf("%.3g", float64(n*c.blocks)/float64(layers)))
	}
	return strings.Join(list, ",")
}
