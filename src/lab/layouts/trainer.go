package layouts

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/partition"
	"dynmo/src/schedule"
)

// Trainer is a program that trains models in pipelines, with its rules and its notation.
type Trainer struct {
	Name string
	Half bool // whether it can cut blocks in halves
	// constrain sets the rules of the problem.
	constrain func(p *Problem, c Chain, half bool) error
	// parse reads a layout in the trainer's notation.
	parse func(text string, c Chain, p Problem) (partition.Partition, error)
	// chunks returns the number of virtual stages on each stage that a layout in the notation has.
	chunks func(text string, stages int) (int, error)
	// brief writes a layout in the notation that parse reads.
	brief func(cuts partition.Partition, c Chain) string
	// format writes a layout as what the user gives to the trainer.
	format func(cuts partition.Partition, c Chain, p Problem) (string, error)
	// Change says how a run goes on with another layout.
	Change string
}

// trainers are the trainers that layouts are made for.
var trainers = []Trainer{megatron, torchtitan, deepspeed, nanotron}

// TrainerNames lists the names of trainers.
func TrainerNames() []string {
	var names []string
	for _, t := range trainers {
		names = append(names, t.Name)
	}
	return names
}

// TrainerNamed returns the trainer with a name.
func TrainerNamed(name string) (Trainer, error) {
	for _, t := range trainers {
		if t.Name == name {
			return t, nil
		}
	}
	return Trainer{}, fmt.Errorf("unknown, want one of %s", strings.Join(TrainerNames(), ", "))
}

// rules sets the rules of the trainer for the chain. half allows cuts inside blocks.
func (t Trainer) rules(p *Problem, c Chain, half bool) error {
	if half && !t.Half {
		return fmt.Errorf("%s cannot cut a block in halves", t.Name)
	}
	halves := func(x part) bool { return x.role == block && !x.first }
	if half && !slices.ContainsFunc(c.parts, halves) {
		return errors.New("--half: no block of the costs has two layers, want names as block.0.attention and block.0.mlp")
	}
	p.Layers = c.Layers
	p.CanCut = make([]bool, len(c.Layers))
	for l, part := range c.parts {
		p.CanCut[l] = part.first || half && part.role == block
		if half {
			p.Inside = append(p.Inside, !part.first)
		}
	}
	return t.constrain(p, c, half)
}

// read reads a layout in the trainer's notation.
func (t Trainer) read(text string, c Chain, p Problem) (partition.Partition, error) {
	cuts, err := t.parse(text, c, p)
	if err == nil && p.Legal != nil {
		err = p.Legal(cuts)
	}
	if err != nil {
		return nil, fmt.Errorf("layout %.200q: %w", text, err)
	}
	return cuts, nil
}

// chunksOf returns the number of virtual stages on each stage.
func chunksOf(virtual, stages int) (int, error) {
	if virtual == 0 || virtual%stages != 0 {
		return 0, fmt.Errorf("%d virtual stages, want a multiple of the %d stages", virtual, stages)
	}
	return virtual / stages, nil
}

// chunksOfCounts is Trainer.chunks of a list with a number for each virtual stage.
func chunksOfCounts(text string, stages int) (int, error) {
	counts, err := numbers(text)
	if err != nil {
		return 0, err
	}
	return chunksOf(len(counts), stages)
}

// oneChunk is Trainer.chunks of a trainer without virtual stages.
func oneChunk(string, int) (int, error) { return 1, nil }

// isCounts reports whether a layout is a list of numbers.
func isCounts(text string) bool { return strings.Trim(text, "0123456789, ") == "" && text != "" }

// numbers reads a list of integers with commas or blanks between them.
func numbers(text string) ([]int, error) {
	var list []int
	for _, field := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(field)
		if err != nil || n < 0 || n > mostSymbols {
			return nil, fmt.Errorf("%.100q, want numbers with commas between them", field)
		}
		list = append(list, n)
	}
	return list, nil
}

// blockCuts returns the cuts of a number of blocks for each virtual stage. The first virtual stage has
// the embedding too, and the last the rest.
func blockCuts(counts []int, c Chain, p Problem) (partition.Partition, error) {
	if n := p.Stages * p.Chunks; len(counts) != n {
		return nil, fmt.Errorf("%d numbers, want %d, one for each virtual stage", len(counts), n)
	}
	cuts, seen := partition.Partition{0}, 0
	for _, n := range counts[:len(counts)-1] {
		seen += n
		at := slices.IndexFunc(c.parts, func(x part) bool { return x.role == block && x.number == seen })
		if seen == c.blocks {
			at = slices.IndexFunc(c.parts, func(x part) bool { return x.role == mtp || x.role == loss }) // the stages behind have no block
		}
		if at < 0 {
			return nil, fmt.Errorf("more blocks than the %d of the costs", c.blocks)
		}
		cuts = append(cuts, at)
	}
	if last := counts[len(counts)-1]; seen+last != c.blocks {
		return nil, fmt.Errorf("%d blocks, and the costs have %d", seen+last, c.blocks)
	}
	return append(cuts, len(c.Layers)), nil
}

// onlyOneChunk returns an error if a trainer without virtual stages is asked for several.
func onlyOneChunk(name string, p *Problem) error {
	if p.Chunks != 1 {
		return fmt.Errorf("%s has one part of the model on each stage, want --chunks 1", name)
	}
	if p.Schedule != schedule.Kind1F1B {
		return fmt.Errorf("%s: schedule %s, want 1f1b", name, p.Schedule)
	}
	return nil
}
