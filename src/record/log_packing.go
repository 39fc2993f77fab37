package record

import (
	"fmt"
	"strings"
)

// String says in plain words what was packed, and what it took.
func (p Packed) String() string {
	text := fmt.Sprintf("packed from %s to %d", count(p.RanksBefore, "rank"), p.Ranks)
	if p.NodesBefore > 1 {
		text += fmt.Sprintf(", on %d of %s", p.Nodes, count(p.NodesBefore, "node"))
	}
	if p.Throughput > 0 {
		text += fmt.Sprintf("; %.2fx the dense model's throughput is predicted", p.Throughput)
	}
	text += took("deciding", p.Deciding, "moving", p.Moving, "resizing", p.Resizing)
	if !p.Exact {
		text += fmt.Sprintf("; microbatches are %d from now on, so that losses are not bit for bit those of a run that keeps them", p.Microbatches)
	}
	return text
}

// String says in plain words what became of ranks and nodes, and what it took.
func (r Released) String() string {
	var list []string
	switch n := r.GivenBack(); {
	case r.Refused != "":
		list = append(list, "no node is given back: "+r.Refused)
	case n > 0:
		list = append(list, fmt.Sprintf("%s given back, %d of %d are left", count(n, "node"), len(r.Nodes), len(r.NodesBefore)))
	}
	switch len(r.Ranks) {
	case 0:
	case 1:
		list = append(list, fmt.Sprintf("rank %d has ended", r.Ranks[0]))
	default:
		list = append(list, fmt.Sprintf("ranks %s have ended", Ranges(r.Ranks)))
	}
	text := strings.Join(list, "; ") + took("checkpoint", r.Checkpoint, "goodbye", r.Goodbye, "scontrol", r.Scontrol)
	if r.Tries > 1 {
		text += fmt.Sprintf(" (%d tries)", r.Tries)
	}
	return text
}

// took writes the seconds of parts, pairs of a name and a Float, those that took any.
func took(parts ...any) string {
	var list []string
	for i := 0; i < len(parts); i += 2 {
		if s := parts[i+1].(Float); s > 0 {
			list = append(list, fmt.Sprintf("%s %s", parts[i], Duration(float64(s))))
		}
	}
	if list == nil {
		return ""
	}
	return "; took: " + strings.Join(list, ", ")
}
