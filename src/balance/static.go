package balance

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"dynmo/src/partition"
)

// Uniform returns Megatron-LM's static cuts. Every stage has the same number of blocks, and the
// first (blocks % P) stages have one more. Layers before the first block are on stage 0, layers
// after the last block on stage P-1. As in Megatron-LM, the two halves of a block stay together.
//
// Blocks are the layers called "block.N" or "block.N.half". Without names every layer counts as a
// block. With fewer blocks than stages Uniform counts halves, and with fewer halves than stages it
// counts all layers. Errors are those of Evaluate.
func Uniform(p Problem) (Result, error) {
	if err := p.Check(); err != nil {
		return Result{}, err
	}
	starts := blockStarts(p)
	each, more := len(starts)/p.Stages, len(starts)%p.Stages
	starts = append(starts, p.Layers()) // begin of empty stages
	cuts := make(partition.Partition, p.Stages+1)
	for s := 1; s < p.Stages; s++ {
		cuts[s] = starts[s*each+min(s, more)]
	}
	cuts[p.Stages] = p.Layers()
	return p.Evaluate(cuts)
}

// blockStarts returns the first layers of the units that Uniform counts: blocks, else halves, else
// layers. It takes the largest unit with at least one per stage.
func blockStarts(p Problem) []int {
	var blocks, halves, layers []int
	last := -1
	for l := range p.Layers() {
		layers = append(layers, l)
		block, ok := blockOf(entry(p.Names, l, ""))
		if p.Names == nil || !ok {
			continue
		}
		halves = append(halves, l)
		if block != last {
			blocks = append(blocks, l)
		}
		last = block
	}
	switch {
	case len(blocks) >= p.Stages:
		return blocks
	case len(halves) >= p.Stages:
		return halves
	}
	return layers
}

// blockOf returns N for a name "block.N" or "block.N.half".
func blockOf(name string) (block int, ok bool) {
	rest, ok := strings.CutPrefix(name, "block.")
	if !ok {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, ".")
	block, err := strconv.Atoi(number)
	return block, err == nil
}

// Param returns DeepSpeed's static cuts by parameters. p must count parameters (New with ByParam),
// taken before training. The largest number of parameters of a stage is the smallest possible.
// Memory is checked but not balanced. Errors are those of Evaluate.
//
// Departs: DeepSpeed's search sometimes misses the best cuts; this search does not.
func Param(p Problem) (Result, error) {
	return p.counted(p.Seconds)
}

// Regex returns DeepSpeed's static cuts by layer type. A layer whose name matches the pattern,
// upper or lower case, counts one; other layers count nothing. Errors are those of Evaluate, and a
// pattern that is wrong or matches no layer.
func Regex(p Problem, pattern string) (Result, error) {
	if err := p.Check(); err != nil {
		return Result{}, err
	}
	match, err := regexp.Compile("(?i)" + pattern)
	if err != nil {
		return Result{}, fmt.Errorf("regex %q: %w", pattern, err)
	}
	weights := make([]float64, p.Layers())
	matches := 0
	for l := range weights {
		if match.MatchString(entry(p.Names, l, "")) {
			weights[l] = 1
			matches++
		}
	}
	if matches == 0 {
		return Result{}, fmt.Errorf("regex %q matches no layer's name", pattern)
	}
	return p.counted(weights)
}

// counted returns the cuts that divide weights best, and their cost in p. It ignores the speed and
// memory of stages when it cuts.
func (p Problem) counted(weights []float64) (Result, error) {
	if err := p.Check(); err != nil {
		return Result{}, err
	}
	r, err := Partition(Problem{Seconds: weights, Stages: p.Stages, AllowEmpty: p.AllowEmpty})
	if err != nil {
		return Result{}, err
	}
	return p.Evaluate(r.Cuts)
}
