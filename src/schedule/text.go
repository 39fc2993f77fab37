package schedule

import (
	"fmt"
	"strconv"
	"strings"

	"dynmo/src/partition"
)

// Lines returns the lists in the format of Format, one string for each stage.
func (s Schedule) Lines() []string {
	return strings.Split(strings.TrimSuffix(Format(s.Lists), "\n"), "\n")
}

// Parse reads the output of Lines, and checks that it is a legal step.
func Parse(kind Kind, m partition.Map, microbatches int, lines []string) (Schedule, error) {
	s := Schedule{Kind: kind, Map: m, Microbatches: microbatches}
	for stage, line := range lines {
		var list []Instr
		for _, word := range strings.Fields(line) {
			in, err := parseInstr(word)
			if err != nil {
				return s, fmt.Errorf("schedule: stage %d: %w", stage, err)
			}
			list = append(list, in)
		}
		s.Lists = append(s.Lists, list)
	}
	return s, s.Check(func(int) int { return m.Chunks * microbatches })
}

// parseInstr reads an instruction in the format of Instr.String.
func parseInstr(word string) (Instr, error) {
	number, chunk, chunked := strings.Cut(word[1:], ".")
	in := Instr{Op: Op(strings.IndexByte("FBIW", word[0]))}
	if strings.IndexByte("FBIW", word[0]) < 0 {
		return in, fmt.Errorf("%q: want F, B, I or W and a microbatch", word)
	}
	var err error
	if in.Microbatch, err = strconv.Atoi(number); err == nil && chunked {
		in.Chunk, err = strconv.Atoi(chunk)
	}
	if err != nil {
		return in, fmt.Errorf("%q: want an op, a microbatch and perhaps a chunk, as in F3.1", word)
	}
	return in, nil
}
