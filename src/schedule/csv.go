package schedule

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/partition"
)

// WriteCSV writes a schedule in the format of PyTorch's pipelining and torchtitan. A stage is a
// row, and an instruction is a cell. A cell is the virtual stage, the op and the microbatch: "2I0".
// Idle time is not written.
func WriteCSV(w io.Writer, s Schedule) error {
	out := csv.NewWriter(w)
	for stage, list := range s.Lists {
		row := make([]string, len(list))
		for i, in := range list {
			row[i] = fmt.Sprintf("%d%v%d", s.Map.Place(stage, in.Chunk), in.Op, in.Microbatch)
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// action and pair match the cells that PyTorch writes (its _Action). B is both halves of the
// backward, I and W.
var (
	action = regexp.MustCompile(`^(\d+)([A-Z_]+)(\d*)$`)
	pair   = regexp.MustCompile(`^\((\w+);(\w+)\)([A-Z_]+)$`) // two instructions that a stage carries out at the same time
)

// reduceGrad is PyTorch's op that sums a virtual stage's gradients over its replicas. Here the sum
// always follows the last backward of the virtual stage, wherever the file puts it.
const reduceGrad = "REDUCE_GRAD"

// placed is an instruction of a virtual stage. The chunk of the virtual stage is not known yet.
type placed struct {
	virtual int
	Instr
}

// ParseCSV reads a schedule in the format of WriteCSV. Errors call the file name. Two kinds of
// cells are ignored: empty cells, where a stage is idle, and REDUCE_GRAD behind the last backward
// of its virtual stage. The numbers of stages, chunks and microbatches are those that occur.
// Virtual stages lie in a line, a loop or a V. The returned schedule has passed Check, without a
// cap. Errors name row and column, from 1, or stage and instruction.
func ParseCSV(name string, r io.Reader) (Schedule, error) {
	in := csv.NewReader(r)
	in.FieldsPerRecord = -1
	var rows [][]placed
	for {
		cells, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Schedule{}, fmt.Errorf("%s: %w", name, err)
		}
		row, err := parseRow(cells)
		if err != nil {
			return Schedule{}, fmt.Errorf("%s: row %d, %w", name, len(rows)+1, err)
		}
		rows = append(rows, row)
	}
	s, err := assemble(rows)
	if err == nil {
		err = s.Check(s.Cap)
	}
	if err != nil {
		return Schedule{}, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// parseRow reads the cells of one stage. Errors name the column.
func parseRow(cells []string) ([]placed, error) {
	var row []placed
	present := map[placed]bool{}
	begun, reduced := map[int]bool{}, map[int]bool{} // by virtual stage
	split := slices.ContainsFunc(cells, func(cell string) bool { return strings.Contains(cell, "I") })
	for i, cell := range cells {
		if cell = strings.TrimSpace(cell); cell == "" {
			continue
		}
		p, reduce, err := parseAction(cell)
		full := p
		full.Op = B
		switch {
		case err != nil:
		case reduce && !begun[p.virtual]:
			err = fmt.Errorf("%q: nothing of virtual stage %d before it", cell, p.virtual)
		case reduce:
			reduced[p.virtual] = true
			continue
		case reduced[p.virtual]:
			err = fmt.Errorf("%q: behind %d%s, want that behind the last backward", cell, p.virtual, reduceGrad)
		case p.Op == W && present[full] && !split:
			err = fmt.Errorf("%q: there is a B of the same microbatch, and B is both halves of the backward; want I for the half for inputs, which older PyTorch calls B", cell)
		}
		if err != nil {
			return nil, fmt.Errorf("column %d: %w", i+1, err)
		}
		present[p], begun[p.virtual] = true, true
		row = append(row, p)
	}
	return row, nil
}

// parseAction reads a cell. It sets reduce for REDUCE_GRAD, where only the virtual stage is used.
func parseAction(cell string) (p placed, reduce bool, err error) {
	if part := pair.FindStringSubmatch(cell); part != nil {
		return p, false, fmt.Errorf("%q: %s is two instructions at a time, a stage carries out one after the other; want %s and %s in cells of their own",
			cell, part[3], part[1], part[2])
	}
	part := action.FindStringSubmatch(cell)
	if part == nil {
		return p, false, fmt.Errorf("%q, want a virtual stage, one of F, I, W and B, and a microbatch, like 2I0", cell)
	}
	virtual, err := strconv.ParseInt(part[1], 10, 32)
	if err != nil {
		return p, false, fmt.Errorf("%q: virtual stage: %w", cell, err)
	}
	p.virtual = int(virtual)
	if part[2] == reduceGrad {
		return p, true, nil
	}
	op, ok := map[string]Op{"F": F, "B": B, "I": I, "W": W}[part[2]]
	if part[2] == "BW" {
		return p, false, fmt.Errorf("%q: BW is older PyTorch's name of B, whose B is I; want I and B", cell)
	}
	if !ok {
		return p, false, fmt.Errorf("%q: %s is derived or unknown, want compute only: F, I, W or B", cell, part[2])
	}
	microbatch, err := strconv.ParseInt(part[3], 10, 32)
	if err != nil {
		return p, false, fmt.Errorf("%q: microbatch: %w", cell, err)
	}
	p.Instr = Instr{Op: op, Microbatch: int(microbatch)}
	return p, false, nil
}

// assemble finds the map under which every row has its own virtual stages. It checks that each
// virtual stage forwards each microbatch. So the schedule is no larger than the file, and Check is
// affordable.
func assemble(rows [][]placed) (Schedule, error) {
	s := Schedule{Kind: KindFile, Map: partition.Map{Stages: len(rows)}}
	if len(rows) == 0 {
		return s, errors.New("no rows, want one for each stage")
	}
	present := map[placed]bool{}
	for _, row := range rows {
		for _, p := range row {
			s.Map.Chunks = max(s.Map.Chunks, p.virtual/len(rows)+1)
			s.Microbatches = max(s.Microbatches, p.Microbatch+1)
			present[p] = true
		}
	}
	if s.Microbatches == 0 {
		return s, errors.New("no instructions")
	}
	if stage, p := stranger(s.Map, rows); p != nil {
		loop := fmt.Errorf("schedule: stage %d: instruction %v of virtual stage %d: neither a loop nor a V of %d stages puts it there",
			stage, p.Instr, p.virtual, len(rows))
		s.Map.Vee = true
		if _, p := stranger(s.Map, rows); p != nil {
			return s, loop
		}
	}
	for v := range s.Map.Virtual() {
		for m := range s.Microbatches {
			if !present[placed{v, Instr{Op: F, Microbatch: m}}] {
				return s, fmt.Errorf("schedule: stage %d: virtual stage %d: F%d is missing", s.Map.Stage(v), v, m)
			}
		}
	}
	for _, row := range rows {
		list := make([]Instr, len(row))
		for i, p := range row {
			list[i] = p.Instr
			list[i].Chunk = s.Map.Chunk(p.virtual)
		}
		s.Lists = append(s.Lists, list)
	}
	return s, nil
}

// stranger returns the first instruction of a virtual stage that belongs to another row; nil: there
// is none.
func stranger(m partition.Map, rows [][]placed) (stage int, p *placed) {
	for stage, row := range rows {
		for i := range row {
			if m.Stage(row[i].virtual) != stage {
				return stage, &row[i]
			}
		}
	}
	return 0, nil
}
