package profile

import (
	"encoding/binary"
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/trace"
)

// wire is a span of an instruction in a message.
type wire struct {
	Kind              trace.Op
	Chunk, Microbatch int32
	Start, End        float64
}

// Instructions returns, on the first stage, the instructions of all stages of
// the replica, by stage, spans being this rank's; nil on the others. Collective
// over the stages.
func Instructions(stages *comm.Group, spans []trace.Span) ([][]trace.Span, error) {
	list := make([]wire, len(spans))
	for i, s := range spans {
		list[i] = wire{s.Op, int32(s.Chunk), int32(s.Microbatch), s.Start, s.End}
	}
	mine, err := binary.Append(nil, binary.LittleEndian, list)
	if err != nil {
		return nil, fmt.Errorf("profile: instructions: %w", err)
	}
	rows, err := stages.Gather(0, mine)
	if err != nil {
		return nil, fmt.Errorf("profile: instructions: %w", err)
	}
	if stages.Rank() != 0 {
		return nil, nil
	}
	all := make([][]trace.Span, len(rows))
	for stage, b := range rows {
		list := make([]wire, len(b)/binary.Size(wire{}))
		if _, err := binary.Decode(b, binary.LittleEndian, list); err != nil {
			return nil, fmt.Errorf("profile: instructions of stage %d: %w", stage, err)
		}
		for _, w := range list {
			all[stage] = append(all[stage], trace.Span{
				Op: w.Kind, Layer: -1, Chunk: int(w.Chunk), Microbatch: int(w.Microbatch), Start: w.Start, End: w.End,
			})
		}
	}
	return all, nil
}
