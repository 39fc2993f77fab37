package record

import (
	"fmt"
	"strings"

	"dynmo/src/plan"
)

// String returns a sentence about the packing: the ranks before and after, and the seconds.
func (p Packed) String() string {
	text := fmt.Sprintf("packed from %s to %d", Counted(p.RanksBefore, "rank"), p.Ranks)
	if p.NodesBefore > 1 {
		text += fmt.Sprintf(", on %d of %s", p.Nodes, Counted(p.NodesBefore, "node"))
	}
	if p.Throughput > 0 {
		text += fmt.Sprintf("; predicted: %.2fx the dense model's throughput", p.Throughput)
	}
	text += took("deciding", p.Deciding, "moving", p.Moving, "resizing", p.Resizing)
	if !p.Exact {
		text += fmt.Sprintf("; %d microbatches from now on, so losses differ in rounding from a run that keeps them", p.Microbatches)
	}
	return text
}

// String returns a sentence about the ranks and nodes that were given back, and the seconds.
func (r Released) String() string {
	var list []string
	switch n := r.GivenBack(); {
	case r.Refused != "":
		list = append(list, "no node given back: "+r.Refused)
	case n > 0:
		list = append(list, fmt.Sprintf("%s given back, %d of %d left", Counted(n, "node"), len(r.Nodes), len(r.NodesBefore)))
	}
	switch len(r.Ranks) {
	case 0:
	case 1:
		list = append(list, fmt.Sprintf("rank %d ended", r.Ranks[0]))
	default:
		list = append(list, fmt.Sprintf("ranks %s ended", Ranges(r.Ranks)))
	}
	text := strings.Join(list, "; ") + took("checkpoint", r.Checkpoint, "goodbye", r.Goodbye, "scontrol", r.Scontrol)
	if r.Tries > 1 {
		text += fmt.Sprintf(" (%d tries)", r.Tries)
	}
	return text
}

// took formats the seconds of parts. parts are pairs of a name and a Float; parts of 0 seconds are
// left out.
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

// Packed records a packing onto fewer ranks. The loop has already recorded the step of the packing,
// as a step without a change.
func (j *Journal) Packed(d Done) error {
	if j == nil {
		return nil
	}
	j.packed(d, d.Measured.Summary.Makespan())
	return j.err
}

// packed records a packing onto fewer ranks after a step with this makespan.
func (j *Journal) packed(d Done, makespan float64) {
	p := Packed{
		Kind: d.Why.Pack.Kind, StagesBefore: d.Ran.Stages(), Stages: d.Next.Stages(),
		RanksBefore: d.Ran.Mesh.Size(), Ranks: d.Next.Mesh.Size(), NodesBefore: j.nodes(d.Ran), Nodes: j.nodes(d.Next),
		Microbatches: d.Next.Schedule.Microbatches, Exact: d.Why.Pack.Exact, Throughput: Float(d.Why.Pack.Throughput),
		Deciding: Float(d.Deciding), Moving: Float(d.Moving - d.Resizing), Resizing: Float(d.Resizing),
	}
	j.answered, j.unpacked = answerNone, plan.Packing{}
	j.observe.Say(fmt.Sprintf("step %d: %s", d.Step, p))
	j.detailed(Event{
		Step: d.Step, Kind: Repack, Bytes: d.Moved.Bytes, Seconds: p.Deciding + Float(d.Moving),
		Before: Float(makespan), Predicted: Float(d.Why.Predicted),
	}, p)
}

// NotPacked begins the detail "kept" of a Balance event about an attempt to pack that packed nothing.
const NotPacked = "not packed: "

// notPacked records the reason why an attempt to pack packed nothing, unless the previous attempt
// had the same outcome.
func (j *Journal) notPacked(d Done) {
	p := d.Why.Pack
	if p == nil || p.Kept == j.unpacked.Kept && p.Stages == j.unpacked.Stages {
		return
	}
	j.unpacked = *p
	why := p.Explain(j.config.Repack)
	j.observe.Say(fmt.Sprintf("step %d: not packed: %s", d.Step, why))
	j.event(Event{Step: d.Step, Kind: Balance, Detail: map[string]any{
		"kept": NotPacked + why, "stages": p.Stages, "throughput": p.Throughput,
	}})
}
