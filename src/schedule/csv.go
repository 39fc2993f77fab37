package schedule

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"dynmo/src/partition"
)

// WriteCSV writes a schedule as PyTorch's pipelining and torchtitan read it:
// a row for each stage, a cell for each instruction, in order. A cell is the
// virtual stage, the op and the microbatch: "2I0". Nothing is written where a
// stage is idle.
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

// action is what PyTorch writes into a cell (its _Action), B being both halves
// of the backward, I and W.
var action = regexp.MustCompile(`^(\d+)([A-Z_]+)(\d*)$`)

// placed is an instruction before it is known what chunk its virtual stage is.
type placed struct {
	virtual int
	Instr
}

// ParseCSV reads a schedule as WriteCSV writes it. name is what errors call it.
// Empty cells, where a stage is idle, mean nothing. Stages, chunks and
// microbatches are what occurs; virtual stages lie in a line, a loop or a V.
// The schedule has passed Check, without a cap. Errors name row and column,
// from 1, or stage and instruction.
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
		var row []placed
		for column, cell := range cells {
			if cell = strings.TrimSpace(cell); cell == "" {
				continue
			}
			p, err := parseAction(cell)
			if err != nil {
				return Schedule{}, fmt.Errorf("%s: row %d, column %d: %w", name, len(rows)+1, column+1, err)
			}
			row = append(row, p)
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

func parseAction(cell string) (placed, error) {
	part := action.FindStringSubmatch(cell)
	if part == nil {
		return placed{}, fmt.Errorf("%q, want a virtual stage, one of F, I, W and B, and a microbatch, like 2I0", cell)
	}
	op, ok := map[string]Op{"F": F, "B": B, "I": I, "W": W}[part[2]]
	if !ok {
		return placed{}, fmt.Errorf("%q: %s is derived or unknown, want compute only: F, I, W or B", cell, part[2])
	}
	virtual, err := strconv.ParseInt(part[1], 10, 32)
	if err != nil {
		return placed{}, fmt.Errorf("%q: virtual stage: %w", cell, err)
	}
	microbatch, err := strconv.ParseInt(part[3], 10, 32)
	if err != nil {
		return placed{}, fmt.Errorf("%q: microbatch: %w", cell, err)
	}
	return placed{int(virtual), Instr{Op: op, Microbatch: int(microbatch)}}, nil
}

// assemble finds the map by which every row has its own virtual stages, and
// sees to it that each of them forwards each microbatch: then the file is as
// large as the schedule that it describes, and Check can be afforded.
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

// stranger returns the first instruction whose virtual stage is not its row's.
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
