package balance

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"dynmo/src/partition"
)

// Uniform returns Megatron-LM's static cuts: every stage has the same number
// of blocks, the first (blocks % P) stages one more; what comes before the
// first block lives on stage 0, what comes after the last on stage P-1. Halves
// of a block stay together, as they do there.
//
// Blocks are the layers called "block.N" or "block.N.half"; without names
// every layer is one. With fewer blocks than stages halves are counted, and
// with fewer halves than stages all layers. Errors as Evaluate's.
func Uniform(p Problem) (Result, error) {
	if err := p.Check(); err != nil {
		return Result{}, err
	}
	starts := blockStarts(p)
	each, more := len(starts)/p.Stages, len(starts)%p.Stages
	starts = append(starts, p.Layers()) // where empty stages begin
	cuts := make(partition.Partition, p.Stages+1)
	for s := 1; s < p.Stages; s++ {
		cuts[s] = starts[s*each+min(s, more)]
	}
	cuts[p.Stages] = p.Layers()
	return p.Evaluate(cuts)
}

// blockStarts returns the first layers of the units that Uniform counts: blocks, else halves,
// else layers. It takes the largest unit that occurs at least once for each stage.
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

// blockOf returns the N of "block.N" or "block.N.half".
func blockOf(name string) (block int, ok bool) {
	rest, ok := strings.CutPrefix(name, "block.")
	if !ok {
		return 0, false
	}
	number, _, _ := strings.Cut(rest, ".")
	block, err := strconv.Atoi(number)
	return block, err == nil
}

// Param returns DeepSpeed's static cuts by parameters. p must count parameters
// (New with ByParam) and is meant to be taken before training: the stages'
// largest number of parameters is the smallest possible. Memory is checked but
// not balanced. Errors as Evaluate's.
//
// Departs: DeepSpeed's search misses the best cuts at times; this one does not.
func Param(p Problem) (Result, error) {
	return p.counted(p.Seconds)
}

// Regex returns DeepSpeed's static cuts by layer type: every layer whose name
// the pattern matches, in any case of letters, counts one, the others nothing.
// Errors as Evaluate's, and for a pattern that is wrong or matches nothing.
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

// counted returns the cuts that divide weights best, without regard to the speed and memory of
// stages, and their cost in p.
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
